//! The demo; `make demo` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::demo::main()
}
