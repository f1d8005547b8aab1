//! Scenarios on the real stack: real Cluster API, real API servers, real kapp-controllers, the release binary of Sluice.

mod harness_installs;
mod observer_catches;

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::scenario::main(&[harness_installs::scenario(), observer_catches::scenario()])
}
