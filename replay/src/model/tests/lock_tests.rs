//! The order in which calls must be granted a contended lock.

use crate::model::order::one_order::Linear;
use crate::model::tests::order_tests::{edges, order, pairs};
use crate::testing::plan;

/// Returns (call on a lock, call that must have had it before) for every rival.
fn rivals(script: &str) -> Vec<(u32, u32)> {
    let plan = plan(script);
    pairs(&plan, &Linear::walk(&plan).edges.rivals)
}

#[test]
fn locks_are_waited_for_in_the_kernel_and_had_in_order() {
    const LOCK: &str = "fd=3 ino=4 cmd=7 lock=1";
    const UNLOCK: &str = "fd=3 ino=4 cmd=6 lock=2";
    let script = format!(
        "A 0-10 fcntl {LOCK} = 0
         B 20-65 fcntl {LOCK} = 0
         C 30-95 fcntl {LOCK} = 0
         A 50-70 fcntl {UNLOCK} = 0
         B 80-90 fcntl {UNLOCK} = 0"
    );
    assert_eq!(order(&script), (vec![0, 3, 1, 4, 2], 0));
    // B does not wait for A's unlock, nor C for B's: the kernel makes them wait.
    assert_eq!(edges(&script), [(1, 0), (2, 0)]);
    assert_eq!(rivals(&script), [(2, 1)]);
}

#[test]
fn who_shares_a_lock_comes_after_it_is_shared() {
    const HELD: &str = "fd=3 ino=4 cmd=6";
    let script = format!(
        "A 0-10 fcntl {HELD} lock=1 = 0
         B 12-14 fcntl {HELD} lock=0 = -11
         A 20-30 fcntl {HELD} lock=0 = 0
         B 40-50 fcntl {HELD} lock=0 = 0
         A 60-70 fcntl {HELD} lock=0 = 0
         A 80-90 fcntl {HELD} lock=2 = 0
         C 95-99 fcntl {HELD} lock=0 = 0"
    );
    // B is refused while A has the lock alone, and gets its part once A shares it.
    assert_eq!(edges(&script), [(1, 0), (2, 1), (3, 2), (6, 5)]);
}

#[test]
fn whom_a_signal_woke_was_refused_by_the_last_who_had_the_lock() {
    const LOCK: &str = "fd=3 ino=4 cmd=7 lock=1";
    const UNLOCK: &str = "fd=3 ino=4 cmd=7 lock=2";
    let script = format!(
        "A 0-10 fcntl {LOCK} = 0
         W 15-60 fcntl {LOCK} = -4
         B 20-32 fcntl {LOCK} = 0
         A 30-31 fcntl {UNLOCK} = 0
         B 55-70 fcntl {UNLOCK} = 0"
    );
    assert_eq!(order(&script), (vec![0, 3, 2, 1, 4], 0));
    // A gives the lock up while W sleeps, and B gets it; B keeps it until W is interrupted.
    assert_eq!(edges(&script), [(1, 0), (2, 0), (4, 1)]);
    assert_eq!(rivals(&script), [(1, 2)]);
}

#[test]
fn a_deadlock_is_refused_while_the_others_of_the_circle_sleep() {
    const FIRST: &str = "fd=3 ino=4 cmd=7 off=0 size=1";
    const SECOND: &str = "fd=3 ino=4 cmd=7 off=1 size=1";
    let script = format!(
        "A 0-1 fcntl {FIRST} lock=1 = 0
         B 2-3 fcntl {SECOND} lock=1 = 0
         A 10-45 fcntl {SECOND} lock=1 = 0
         C 15-90 flock fd=5 ino=9 cmd=2 = 0
         B 20-21 fcntl {FIRST} lock=1 = -35
         B 40-41 fcntl {SECOND} lock=2 = 0
         A 50-51 fcntl {FIRST} lock=2 = 0"
    );
    assert_eq!(order(&script), (vec![0, 1, 4, 5, 2, 6, 3], 0));
    // B comes after A got the first lock, and before A gives it up; A sleeps meanwhile.
    assert_eq!(edges(&script), [(2, 1), (4, 0), (6, 4)]);
    assert_eq!(rivals(&script), [(4, 2)]);
}

#[test]
fn who_waits_through_several_turns_has_every_one_as_a_rival() {
    const LOCK: &str = "fd=3 ino=4 cmd=7 lock=1";
    const SHARED: &str = "fd=3 ino=4 cmd=7 lock=0";
    const UNLOCK: &str = "fd=3 ino=4 cmd=7 lock=2";
    let script = format!(
        "A 0-10 fcntl {LOCK} = 0
         W 15-95 fcntl {LOCK} = 0
         B 20-42 fcntl {SHARED} = 0
         C 30-44 fcntl {SHARED} = 0
         A 40-41 fcntl {UNLOCK} = 0
         C 50-51 fcntl {UNLOCK} = 0
         B 60-61 fcntl {UNLOCK} = 0
         A 65-66 fcntl {LOCK} = 0
         A 90-91 fcntl {UNLOCK} = 0"
    );
    assert_eq!(order(&script), (vec![0, 4, 2, 3, 5, 6, 7, 8, 1], 0));
    // Readers do not wait for each other; A took the lock again before W woke.
    assert_eq!(rivals(&script), [(1, 2), (1, 3), (1, 7)]);
    assert_eq!(
        edges(&script),
        [(1, 0), (2, 0), (3, 0), (5, 4), (6, 5), (7, 6)]
    );
}

/// Cyrus replaces mailboxes.db in this way: under a shared lock, a process finds that its file is
/// the old one; it loses the lock by closing it. The next call does not wait for that, but for the
/// writer before.
#[test]
fn the_end_of_a_shared_lock_stands_for_no_writers_before_it() {
    let readers = 20;
    let mut script = "W 0-1 fcntl fd=3 ino=4 cmd=7 lock=1 = 0\n".to_owned();
    script += "W 2-3 fcntl fd=3 ino=4 cmd=7 lock=2 = 0\n";
    for reader in 0..readers {
        let at = 10 * (reader + 1);
        script += &format!(
            "R{reader} {at}-{} fcntl fd=3 ino=4 cmd=7 lock=0 = 0\n",
            at + 1
        );
        script += &format!("R{reader} {}-{} close fd=3 ino=4 = 0\n", at + 2, at + 3);
    }
    let found = edges(&script);
    for reader in 0..readers {
        let lock = 2 + 2 * reader;
        assert!(found.contains(&(lock, 1)), "{lock} of {found:?}");
    }
}

#[test]
fn locks_on_other_bytes_are_other_locks() {
    let script = |second: &str| {
        format!(
            "A 0-10 fcntl fd=3 ino=4 cmd=7 lock=1 off=0 size=100 = 0
             B 20-30 fcntl fd=3 ino=4 cmd=7 lock=1 {second} = 0
             A 40-50 fcntl fd=3 ino=4 cmd=7 lock=2 off=0 size=0 = 0"
        )
    };
    assert_eq!(edges(&script("off=100 size=0")), []);
    assert_eq!(edges(&script("off=200 size=-100")), []);
    assert_eq!(order(&script("off=100 size=1")), (vec![0, 1, 2], 0));
    assert_eq!(edges(&script("off=99 size=1")), [(1, 0)]);
    // The range counts from the position, which is not recorded: it may be any.
    assert_eq!(edges(&script("off=100 size=1 whence=1")), [(1, 0)]);
}

#[test]
fn a_lock_ends_with_the_last_descriptor_of_its_file() {
    let script = "
        A 0-1 openat f flags=2 ino=4 = 3
        A 2-3 flock fd=3 ino=4 cmd=2 = 0
        A 4-5 dup fd=3 ino=4 = 5
        A 6-7 close fd=3 ino=4 = 0
        B 8-9 openat f flags=2 ino=4 = 3
        B 10-40 flock fd=3 ino=4 cmd=2 = 0
        A 30-50 close fd=5 ino=4 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2, 3, 4, 6, 5], 0));
}

#[test]
fn without_inodes_locks_are_kept_apart_by_what_was_opened() {
    let script = "
        A 0-1 openat f flags=2 = 3
        A 2-3 openat g flags=2 = 4
        B 4-5 openat f flags=2 = 7
        A 6-10 flock fd=3 cmd=2 = 0
        A 11-12 flock fd=4 cmd=2 = 0
        B 13-40 flock fd=7 cmd=2 = 0
        A 20-21 flock fd=4 cmd=8 = 0
        A 30-31 flock fd=3 cmd=8 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2, 3, 4, 6, 7, 5], 0));
    assert_eq!(edges(script), [(5, 3)]);
}

#[test]
fn a_try_that_was_refused_lies_within_the_hold() {
    let script = "
        A 0-10 flock fd=3 ino=4 cmd=2 = 0
        B 20-90 flock fd=3 ino=4 cmd=6 = -11
        A 30-40 flock fd=3 ino=4 cmd=8 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(1, 0), (2, 1)]);
}

#[test]
fn a_try_that_was_refused_comes_after_the_one_that_got_the_lock() {
    // By their ends the refusal would come first, and the try would succeed.
    let script = "
        A 0-100 flock fd=3 ino=4 cmd=2 = 0
        B 20-50 flock fd=3 ino=4 cmd=6 = -11
        A 110-120 flock fd=3 ino=4 cmd=8 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(1, 0), (2, 1)]);
}

#[test]
fn a_lease_is_asked_for_when_others_have_closed_the_file_and_broken_in_the_call() {
    let script = "
        tree a ino=4
        A 0-1 open a flags=0 ino=4 omode=100644 osize=0 = 3
        B 2-3 open a flags=2 ino=4 omode=100644 osize=0 = 3
        A 10-11 fcntl a fd=3 ino=4 cmd=1024 arg=0 = -11
        B 20-21 close a fd=3 ino=4 = 0
        A 30-31 fcntl a fd=3 ino=4 cmd=1024 arg=0 = 0
        B 40-60 open a flags=2 ino=4 omode=100644 osize=0 = 3
        A 50-51 fcntl a fd=3 ino=4 cmd=1024 arg=2 = 0
        B 70-71 open a flags=0 ino=4 omode=100644 osize=0 = 4
    ";
    // The open at 40 does not wait for the end of the lease before it is issued.
    assert_eq!(edges(script), [(2, 1), (3, 2), (4, 3), (5, 4), (7, 6)]);
}

#[test]
fn a_lease_is_asked_for_when_a_child_that_had_the_file_has_ended() {
    let script = "
        tree a ino=4
        A 0-1 open a flags=2 ino=4 omode=100644 osize=0 = 3
        A 2-3 FORK B = 0
        A 4-5 close a fd=3 ino=4 = 0
        A 6-7 open a flags=0 ino=4 omode=100644 osize=0 = 3
        B 10-11 EXIT = 0
        A 20-21 fcntl a fd=3 ino=4 cmd=1024 arg=0 = 0
    ";
    assert_eq!(edges(script), [(5, 4)]);
}

#[test]
fn a_lock_of_an_open_file_ends_with_the_last_process_that_has_it() {
    let script = "
        A 0-1 open a flags=2 ino=4 omode=100644 osize=0 = 3
        A 2-3 FORK B = 0
        B 4-5 open a flags=2 ino=4 omode=100644 osize=0 = 5
        B 6-7 flock a fd=5 ino=4 cmd=2 = 0
        B 8-9 FORK C = 0
        B 10-11 EXIT = 0
        C 12-13 EXIT = 0
        A 20-21 flock a fd=3 ino=4 cmd=6 = 0
    ";
    assert!(edges(script).contains(&(7, 6)));
}

#[test]
fn posix_locks_outlive_exec() {
    let script = "
        A 0-1 open a flags=2 ino=4 = 3
        A 2-3 fcntl fd=3 ino=4 cmd=6 lock=1 = 0
        A 4-5 EXEC = 0
        B 6-7 open a flags=2 ino=4 = 3
        B 8-40 fcntl fd=3 ino=4 cmd=7 lock=1 = 0
        A 30-50 close fd=3 ino=4 = 0
    ";
    // By their ends B would have the lock before A closes the file.
    assert_eq!(order(script), (vec![0, 1, 2, 3, 5, 4], 0));
}

#[test]
fn exec_gives_up_locks_of_what_it_closes() {
    let script = |marked: &str, lock: &str| {
        format!(
            "A 0-1 {marked}
             A 10-11 {lock} fd=5 ino=4 = 0
             A 12-13 EXEC = 0
             B 14-15 open a flags=2 ino=4 = 5
             B 16-17 {lock} fd=5 ino=4 = 0"
        )
    };
    for lock in ["flock cmd=6", "fcntl cmd=6 lock=1", "fcntl cmd=37 lock=1"] {
        for marked in [
            "open a flags=2000002 ino=4 = 5",
            "open a flags=2 ino=4 = 5\n A 2-3 fcntl fd=5 ino=4 cmd=2 arg=1 = 0",
            "open a flags=2 ino=4 = 5\n A 2-3 close_range fd=3 fd2=9 flags=4 = 0",
            "open a flags=2000002 ino=4 = 5\n A 2-3 dup2 fd=5 fd2=5 ino=4 = 5",
        ] {
            let script = script(marked, lock);
            let exec = script.lines().position(|line| line.contains("EXEC"));
            let exec = exec.expect("a line") as u32;
            assert!(edges(&script).contains(&(exec + 2, exec)), "{script}");
        }
    }
}

#[test]
fn locks_of_open_files_outlive_exec_by_a_duplicate() {
    let script = "
        A 0-1 open a flags=2000002 ino=4 = 3
        A 2-3 flock fd=3 ino=4 cmd=6 = 0
        A 4-5 dup fd=3 ino=4 = 7
        A 6-7 EXEC = 0
        B 8-9 open a flags=2 ino=4 = 3
        B 10-40 flock fd=3 ino=4 cmd=2 = 0
        A 30-50 close fd=7 ino=4 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2, 3, 4, 6, 5], 0));
}

/// `postfix stop` tests the master's lock, of which children had copies until they executed.
#[test]
fn a_lock_is_given_up_when_no_child_has_a_copy_any_more() {
    let script = "
        A 0-1 open a flags=2000002 ino=4 = 3
        A 2-3 flock fd=3 ino=4 cmd=6 = 0
        A 4-5 FORK B
        A 5-6 FORK C
        B 7-8 EXEC = 0
        C 9-10 EXEC = 0
        A 11-12 EXIT = 0
        D 13-14 open a flags=2 ino=4 = 3
        D 15-16 flock fd=3 ino=4 cmd=6 = 0
    ";
    let found = edges(script);
    assert!(
        found.contains(&(6, 4)) && found.contains(&(6, 5)),
        "{found:?}"
    );
    assert!(found.contains(&(8, 6)), "{found:?}");
}

#[test]
fn locks_of_a_process_end_with_its_last_thread() {
    let script = "
        A 0-1 open a flags=2 ino=4 = 3
        A 2-3 THREAD T = 0
        A 4-5 fcntl fd=3 ino=4 cmd=6 lock=1 = 0
        A 6-7 EXIT = 0
        B 8-9 open a flags=2 ino=4 = 3
        B 10-11 fcntl fd=3 ino=4 cmd=6 lock=1 = -11
        T 12-13 EXIT = 0
        B 14-15 fcntl fd=3 ino=4 cmd=6 lock=1 = 0
    ";
    let edges = edges(script);
    // T comes last, also as fast as possible; not before B was refused; and B waits for it.
    for edge in [(6, 3), (6, 5), (7, 6)] {
        assert!(edges.contains(&edge), "{edge:?} is not among {edges:?}");
    }
}

#[test]
fn what_a_copy_replaces_and_what_lies_in_a_range_is_closed() {
    let script = "
        A 0-1 open a flags=2 ino=4 = 3
        A 2-3 flock fd=3 ino=4 cmd=6 = 0
        A 4-5 open b flags=2 ino=5 = 6
        A 6-7 flock fd=6 ino=5 cmd=6 = 0
        A 8-9 dup2 fd=6 fd2=3 ino=5 = 3
        B 10-11 open a flags=2 ino=4 = 3
        B 12-13 flock fd=3 ino=4 cmd=6 = 0
        A 14-15 close_range fd=3 fd2=9 = 0
        B 16-17 open b flags=2 ino=5 = 4
        B 18-19 flock fd=4 ino=5 cmd=6 = 0
    ";
    let edges = edges(script);
    assert!(edges.contains(&(6, 4)), "{edges:?}");
    assert!(edges.contains(&(9, 7)), "{edges:?}");
}

#[test]
fn a_range_is_closed_when_other_threads_have_read_from_it() {
    let script = "
        A 0-1 open a flags=2 ino=4 = 5
        A 2-3 THREAD T = 0
        T 4-5 read fd=5 ino=4 size=10 = 10
        A 6-7 close_range fd=3 fd2=9 = 0
    ";
    assert!(edges(script).contains(&(3, 2)));
}
