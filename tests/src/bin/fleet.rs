//! The fleet; `make bench-fleet` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::fleet::main()
}
