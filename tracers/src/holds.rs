//! The time for which processes have held file locks.
//!
//! The kernel lists locks, but not when they were taken. A lock that is in two readings may have
//! been released and taken again between them; the recorded calls show that.

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use spoolscope_traces::calls::id_of;
use spoolscope_traces::records::{
    HeldLock, LOCK_FLOCK, LOCK_LEASE, LOCK_OPEN_FILE, LOCK_POSIX, Syscall,
};

use crate::held;
use crate::under_way::text;

const FCNTL: u16 = id_of("fcntl");
const FLOCK: u16 = id_of("flock");
const CLOSE: u16 = id_of("close");
/// Commands of fcntl that take or release locks.
const LOCKING: [u64; 4] = [6, 7, 37, 38];
/// Readings without a lock after which it counts as released: one reading may lack a lock when
/// others come and go.
const ABSENCES: u32 = 2;

/// Identity of a lock: kind, exclusive, device, inode, process, start, length.
type Lock = (u8, u8, u32, u64, u32, i64, i64);

/// A lock, and the latest time at which it may have been taken.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    lock: HeldLock,
    since_ns: u64,
    absences: u32,
    waiters: usize,
}

impl Hold {
    /// Return the process that took it; 0 if unknown, because the lock belongs to an open file.
    pub fn pid(&self) -> u32 {
        self.lock.pid
    }

    /// Return how long it has been held.
    pub fn ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// Return a name that differs from every other hold, also from the same lock taken again.
    pub fn name(&self) -> String {
        format!("{:?} {}", key(&self.lock), self.since_ns)
    }

    /// Return the description that the frozen trace gets.
    pub fn as_json(&self, now_ns: u64) -> Value {
        let lock = &self.lock;
        let comm = std::fs::read(format!("/proc/{}/comm", lock.pid)).unwrap_or_default();
        json!({
            "pid": lock.pid, "comm": text(comm.trim_ascii_end()), "dev": lock.dev, "ino": lock.ino,
            "kind": match lock.kind {
                LOCK_POSIX => "posix",
                LOCK_OPEN_FILE => "ofd",
                LOCK_FLOCK => "flock",
                _ => "lease",
            },
            "exclusive": lock.exclusive != 0, "since_ns": self.since_ns, "ns": self.ns(now_ns),
            "waiters": self.waiters,
        })
    }
}

/// The locks that are held, as far as they were seen.
#[derive(Debug, Default)]
pub struct Holds {
    held: FxHashMap<Lock, Hold>,
    /// Calls that took or released locks since the last reading.
    calls: Vec<Syscall>,
}

fn key(lock: &HeldLock) -> Lock {
    let (kind, exclusive) = (lock.kind, lock.exclusive);
    let (start, length) = (lock.start, lock.length);
    (kind, exclusive, lock.dev, lock.ino, lock.pid, start, length)
}

impl Holds {
    /// Note a call that has returned.
    pub fn called(&mut self, call: &Syscall) {
        let locks = match call.call {
            FCNTL => LOCKING.contains(&call.args[1]),
            FLOCK => true,
            CLOSE => self.held.values().any(|hold| hold.lock.ino == call.ino),
            _ => false,
        };
        if locks && call.ret == 0 {
            self.calls.push(*call);
        }
    }

    /// Read the list of locks on files of wanted devices; return when it was read.
    pub fn look(&mut self, wanted: impl Fn(u32) -> bool) -> Result<u64> {
        let (now_ns, found) = held::read_locks(|dev, _| wanted(dev))?;
        self.see(now_ns, &found);
        Ok(now_ns)
    }

    fn see(&mut self, now_ns: u64, found: &[HeldLock]) {
        self.held.values_mut().for_each(|hold| hold.absences += 1);
        let (waiting, held): (Vec<&HeldLock>, Vec<&HeldLock>) =
            found.iter().partition(|lock| lock.waiting != 0);
        for lock in held.iter().filter(|lock| lock.kind != LOCK_LEASE) {
            let file = (lock.dev, lock.ino);
            let taken = self.calls.iter().filter(|call| is_about(call, lock));
            let taken_ns = taken.map(|call| call.end_ns).max();
            let hold = self.held.entry(key(lock)).or_insert(Hold {
                lock: **lock,
                since_ns: taken_ns.unwrap_or(now_ns),
                absences: 0,
                waiters: 0,
            });
            hold.since_ns = taken_ns.unwrap_or(hold.since_ns);
            hold.absences = 0;
            hold.waiters = waiting.iter().filter(|w| (w.dev, w.ino) == file).count();
        }
        self.held.retain(|_, hold| hold.absences < ABSENCES);
        self.calls.clear();
    }

    /// Return the locks that were held longer than the limit, the longest first.
    pub fn longer_than(&self, limit_ns: u64, now_ns: u64) -> Vec<Hold> {
        let long = self.held.values().filter(|hold| hold.ns(now_ns) > limit_ns);
        let mut long: Vec<Hold> = long.copied().collect();
        long.sort_by_key(|hold| (hold.since_ns, hold.lock.ino));
        long
    }
}

/// Return true if that call may have taken or released the lock.
fn is_about(call: &Syscall, lock: &HeldLock) -> bool {
    if (call.dev, call.ino) != (lock.dev, lock.ino) || (lock.pid != 0 && lock.pid != call.pid) {
        return false;
    }
    match (call.call, lock.kind) {
        (FLOCK, LOCK_FLOCK) => true,
        (CLOSE, LOCK_POSIX) => true, // gives up all locks of its process
        (FCNTL, LOCK_POSIX | LOCK_OPEN_FILE) => overlap(call, lock),
        _ => false,
    }
}

/// Return true if the ranges of the call and the lock overlap, or may: a range counted from the end
/// of the file is not known.
fn overlap(call: &Syscall, lock: &HeldLock) -> bool {
    let end = |start: i64, length: i64| match length {
        0 => i64::MAX,
        length => start.saturating_add(length),
    };
    let from_end = call.lock_type >> 8 == libc::SEEK_END as u16;
    from_end || (call.pos < end(lock.start, lock.length) && lock.start < end(call.pos, call.size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(kind: u8, start: i64) -> HeldLock {
        HeldLock {
            kind,
            start,
            length: 10,
            pid: 3,
            dev: 1,
            ino: 2,
            ..HeldLock::default()
        }
    }

    fn call(call: u16, pos: i64, end_ns: u64) -> Syscall {
        Syscall {
            call,
            args: [0, 6, 0, 0, 0, 0],
            pid: 3,
            dev: 1,
            ino: 2,
            pos,
            size: 10,
            end_ns,
            ..Syscall::default()
        }
    }

    fn since(holds: &Holds) -> Vec<u64> {
        let long = holds.longer_than(0, u64::MAX);
        long.iter().map(|hold| hold.since_ns).collect()
    }

    #[test]
    fn a_lock_taken_again_between_two_looks_is_another_one() {
        let (mut holds, posix) = (Holds::default(), lock(LOCK_POSIX, 0));
        holds.see(100, &[posix]);
        holds.see(200, &[posix]);
        assert_eq!(since(&holds), [100]);
        holds.called(&call(FCNTL, 50, 250)); // another range of the same file
        holds.see(300, &[posix]);
        assert_eq!(since(&holds), [100]);
        holds.called(&call(FCNTL, 5, 350));
        holds.see(400, &[posix]);
        assert_eq!(since(&holds), [350]);
        holds.called(&call(CLOSE, -1, 450));
        holds.see(500, &[posix]);
        assert_eq!(since(&holds), [450]);
    }

    #[test]
    fn a_lock_missing_in_one_reading_is_still_held_and_in_two_is_not() {
        let (mut holds, flock) = (Holds::default(), lock(LOCK_FLOCK, 0));
        holds.called(&call(FLOCK, -1, 90));
        holds.see(100, &[flock]);
        holds.see(200, &[]);
        holds.see(300, &[flock]);
        assert_eq!(since(&holds), [90]);
        holds.called(&call(CLOSE, -1, 350)); // one of two descriptors
        let waiting = HeldLock {
            waiting: 1,
            pid: 9,
            ..flock
        };
        holds.see(400, &[flock, waiting, waiting]);
        let [hold] = holds.longer_than(309, 400)[..] else {
            panic!("one is held");
        };
        assert_eq!((hold.since_ns, hold.waiters), (90, 2));
        holds.see(500, &[]);
        holds.see(600, &[]);
        assert_eq!(since(&holds), [0u64; 0]);
    }
}
