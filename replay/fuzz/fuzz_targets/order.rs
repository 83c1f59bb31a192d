//! The stored order of a plan, changed at will, is refused with a reason, or explained.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|changes: &[u8]| {
    spoolscope_replay::fuzzing::order(include_bytes!("../rich.plan"), changes);
});
