//! Hooks under load, beside an extension in Go and a bare echo; `make bench-hooks` runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    sluice_tests::fleet::hooks::main()
}
