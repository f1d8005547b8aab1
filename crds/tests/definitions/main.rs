//! The definitions and the types that they are made from.

mod contract;
mod defaults;
mod foreign;
mod generated;
mod kustomization;
mod lifecycle;
mod round_trip;
