//! Upgrades by Sluice beside those of the pause flow; `make compare` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::compare::main()
}
