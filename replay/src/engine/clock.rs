//! Clocks of a replay.

/// Returns CLOCK_MONOTONIC, in nanoseconds.
pub fn now_ns() -> i64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns what to add to the monotonic clock to get time since the epoch.
pub fn epoch_less_monotonic_ns() -> i64 {
    // The try with the shortest time between its readings is the most exact.
    let tries = (0..16).map(|_| {
        let before = now_ns();
        let real = clock_ns(libc::CLOCK_REALTIME);
        let after = now_ns();
        (after - before, real - before - (after - before) / 2)
    });
    tries.min().unwrap_or_default().1
}

fn clock_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
