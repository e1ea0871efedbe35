//! The binary `tidegate`: see the library for everything.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate::cli::main()
}
