//! Cause of a gate that is held for long: which requests a probe makes, and what their responses show.
//!
//! No gate depends on a cause. `docs/failure-modes.md` has a section for each of them.

mod cause;
mod classify;
mod objects;
mod probe;
mod requests;
mod texts;

#[cfg(test)]
pub(crate) use self::cause::held_cause;
pub(crate) use self::classify::{is_probed, of_reason};
pub use self::{
    cause::Cause,
    classify::classify,
    objects::HeldObjects,
    probe::{Probe, ProbeRequest, Probed, ProbedPackage, Probing},
    texts::Texts,
};

#[cfg(test)]
mod tests;
