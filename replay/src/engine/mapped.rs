//! Mappings of files: unmapped, synchronised and touched at recorded addresses.

use spoolscope_traces::records::{PlanOp, REASON_UNSUPPORTED};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use crate::engine::fds::Mapping;
use crate::engine::raw::{locked, syscall};
use crate::engine::task::Task;
use crate::engine::verdict::Refusal;
use crate::semantics::{self, Kind};

const PAGE: usize = 4096;

/// Notes the mapping that a successful mmap made.
pub fn note(task: &Task, op: &PlanOp, real: usize) {
    locked(&task.process.fds.mappings).push(Mapping {
        start: op.ret,
        len: (op.size.max(1) as usize).next_multiple_of(PAGE),
        real,
        ino: op.ino,
        offset: op.offset.max(0),
        prot: op.mode as i32,
    });
}

/// Replays a munmap or msync of a part of a recorded mapping.
pub fn change(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    let mut mappings = locked(&task.process.fds.mappings);
    let at = mappings
        .iter()
        .rposition(|mapping| (mapping.start..mapping.start + mapping.len as i64).contains(&op.arg))
        .ok_or(REASON_UNSUPPORTED)?;
    let whole = mappings[at];
    let before = (op.arg - whole.start) as usize;
    let size = (op.size.max(0) as usize).min(whole.len - before);
    let place = (whole.real + before) as i64;
    if semantics::kind(op) == Kind::Msync {
        let flags = i64::from(op.flags as i32);
        let registers = [place, size as i64, flags, 0, 0, 0];
        return Ok(syscall(libc::SYS_msync, registers));
    }
    mappings.remove(at);
    if before > 0 {
        mappings.push(Mapping {
            len: before,
            ..whole
        });
    }
    let rest = before + size.next_multiple_of(PAGE);
    if rest < whole.len {
        mappings.push(Mapping {
            start: whole.start + rest as i64,
            len: whole.len - rest,
            real: whole.real + rest,
            offset: whole.offset + rest as i64,
            ..whole
        });
    }
    Ok(syscall(libc::SYS_munmap, [place, size as i64, 0, 0, 0, 0]))
}

/// Touches a page as a recorded page fault did; contents stay as they are.
///
/// A page past the end of the file gives EFAULT: the recorded process found a page there.
pub fn touch(task: &Task, op: &PlanOp) -> Result<i64, Refusal> {
    // Held while the page is touched, so that no other thread unmaps it.
    let mappings = locked(&task.process.fds.mappings);
    let holds = |mapping: &&Mapping| {
        let inside = mapping.offset..mapping.offset + mapping.len as i64;
        mapping.ino == op.ino && inside.contains(&op.offset)
    };
    let mapping = mappings.iter().rfind(holds).ok_or(REASON_UNSUPPORTED)?;
    let place = mapping.real + (op.offset - mapping.offset) as usize;
    TOUCHED.with(|page| page.store(place & !(PAGE - 1), SeqCst));
    BROKEN.with(|broken| broken.store(false, SeqCst));
    if semantics::dirties(op) && mapping.prot & libc::PROT_WRITE != 0 {
        // SAFETY: mapped for writing, and not unmapped meanwhile. This makes the page dirty,
        // whatever others write to it; the compiler must not see that nothing is added.
        unsafe { AtomicU8::from_ptr(place as *mut u8) }.fetch_or(black_box(0), Relaxed);
    } else if mapping.prot & (libc::PROT_READ | libc::PROT_WRITE) != 0 {
        // SAFETY: as above, for reading.
        unsafe { std::ptr::read_volatile(place as *const u8) };
    } else {
        return Err(REASON_UNSUPPORTED);
    }
    TOUCHED.with(|page| page.store(0, SeqCst));
    Ok(match BROKEN.with(|broken| broken.load(SeqCst)) {
        true => -i64::from(libc::EFAULT),
        false => 0,
    })
}

thread_local! {
    // Atomic, as the handler of a signal of the same thread changes them.
    /// Page that is being touched, or 0.
    static TOUCHED: AtomicUsize = const { AtomicUsize::new(0) };
    /// The touched page has no file behind it.
    static BROKEN: AtomicBool = const { AtomicBool::new(false) };
}

/// Handles SIGBUS, raised by pages past the end of a file: maps an empty page, and the touch goes
/// on.
pub fn survive_missing_pages() {
    // SAFETY: the handler makes one system call and sets a flag of its own thread.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = missing_page as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn missing_page(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel filled `info`; the page belongs to a mapping of this process, and a
    // failure ends the process by the signal's default action.
    unsafe {
        let page = (*info).si_addr() as usize & !(PAGE - 1);
        let own = page == TOUCHED.with(|page| page.load(SeqCst));
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let place = page as *mut libc::c_void;
        if !own || libc::mmap(place, PAGE, prot, flags, -1, 0) == libc::MAP_FAILED {
            libc::signal(libc::SIGBUS, libc::SIG_DFL);
        }
    }
    BROKEN.with(|broken| broken.store(true, SeqCst));
}
