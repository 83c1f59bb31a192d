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

pub fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn written(lock: &std::sync::RwLock<()>) -> std::sync::RwLockWriteGuard<'_, ()> {
    lock.write()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
