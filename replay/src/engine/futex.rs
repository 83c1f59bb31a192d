//! Words that tasks of several processes sleep on.

use std::sync::atomic::AtomicU32;

/// Sleeps until `word` differs from `expected`, a wake, or the timeout.
pub fn futex_wait(word: &AtomicU32, expected: u32, timeout_ns: i64) {
    let timeout = libc::timespec {
        tv_sec: timeout_ns / 1_000_000_000,
        tv_nsec: timeout_ns % 1_000_000_000,
    };
    // SAFETY: the word outlives the call; no result is needed, callers check again.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
        );
    }
}

/// Wakes every sleeper.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}
