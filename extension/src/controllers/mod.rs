//! Reconcilers: dereference, validate, build, apply, update_status.

pub mod bootstrap;
pub mod providers;

mod write;

/// An error with its sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
