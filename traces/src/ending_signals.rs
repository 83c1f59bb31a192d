//! Signals that end a command in order.

const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Calls `handler` for each signal that ends a command, but not for the end of the terminal if
/// that is ignored, as under nohup.
///
/// `handler` must do only what is safe in a signal handler, such as storing to an atomic.
pub fn catch_ending(handler: extern "C" fn(libc::c_int)) {
    for signal in ENDING {
        // SAFETY: the handler is safe by the rule above.
        let before = unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
        if signal == libc::SIGHUP && before == libc::SIG_IGN {
            // SAFETY: ignoring is always allowed.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
}
