//! Tests of overrides.
