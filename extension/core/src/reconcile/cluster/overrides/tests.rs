//! Tests of the reads that confirm overrides.
