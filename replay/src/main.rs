//! The program `spoolscope-replay`; all that it does is in the library.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: spoolscope_replay::Allocator = spoolscope_replay::Allocator;

fn main() -> ExitCode {
    spoolscope_replay::main()
}
