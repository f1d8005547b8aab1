//! The soak; `make soak` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::soak::main()
}
