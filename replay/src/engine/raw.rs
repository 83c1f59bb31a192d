//! System calls and locks as they are, without a task.

use std::mem::MaybeUninit;

/// Makes the call; returns -errno on failure. An interrupted call is made again.
pub fn syscall(number: i64, r: [i64; 6]) -> i64 {
    loop {
        // SAFETY: pointers among the registers lead to the task's own buffers.
        let ret = unsafe { libc::syscall(number, r[0], r[1], r[2], r[3], r[4], r[5]) };
        match ret {
            -1 if last_errno() == libc::EINTR => {}
            -1 => return -i64::from(last_errno()),
            _ => return ret,
        }
    }
}

pub fn last_errno() -> i32 {
    // SAFETY: always valid.
    unsafe { *libc::__errno_location() }
}

/// Returns the mode of the object of a real descriptor; 0 if there is none.
pub fn mode_of(real: i32) -> u32 {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the buffer is large enough, and valid when zeroed.
    unsafe {
        libc::fstat(real, stat.as_mut_ptr());
        stat.assume_init().st_mode
    }
}

/// Returns whether all writes of an open file go to its end.
pub fn appends(real: i32) -> bool {
    has_flag(real, libc::O_APPEND)
}

/// Returns whether an open file takes only what is aligned.
pub fn is_direct(real: i32) -> bool {
    has_flag(real, libc::O_DIRECT)
}

/// Returns whether a descriptor only stands for a name (O_PATH), and takes few calls.
pub fn only_names(real: i32) -> bool {
    has_flag(real, libc::O_PATH)
}

fn has_flag(real: i32, flag: i32) -> bool {
    // SAFETY: plain system call; of no descriptor it is -1.
    let flags = unsafe { libc::fcntl(real, libc::F_GETFL) };
    flags >= 0 && flags & flag != 0
}

pub fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn written(lock: &std::sync::RwLock<()>) -> std::sync::RwLockWriteGuard<'_, ()> {
    lock.write()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
