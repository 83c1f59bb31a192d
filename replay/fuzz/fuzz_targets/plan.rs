//! Any file given as a plan is refused with a reason, or ordered, explained, cut, thinned out and
//! multiplied.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| spoolscope_replay::fuzzing::plan(bytes));
