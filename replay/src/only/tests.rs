use super::only;
use crate::model::order::one_order::Linear;
use crate::semantics;
use crate::testing::{opened, plan};

/// Returns what is kept if the operations of the first thread are chosen, by thread and name.
fn of_first(script: &str) -> Vec<String> {
    let whole = plan(script);
    let chosen: Vec<bool> = whole.ops().iter().map(|op| op.thread == 0).collect();
    let (draft, facts) = only(&whole, &chosen);
    let part = opened(draft);
    assert!(Linear::walk(&part).unexplained.is_empty());
    let calls = facts["chosen"].as_u64().zip(facts["given"].as_u64());
    assert_eq!(
        calls.map(|(one, other)| one + other),
        Some(part.ops().len() as u64)
    );
    let tid = |thread: u32| part.threads()[thread as usize].tid - 100;
    let ops = part.ops().iter();
    ops.map(|op| format!("{} {}", tid(op.thread), semantics::name(op)))
        .collect()
}

#[test]
fn what_others_made_for_the_chosen_is_given_with_what_that_needs() {
    let script = "
        tree new mode=40755
        A 0-5 stat x = -2
        B 10-20 open tmp/1 flags=301 mode=600 ino=7 omode=100600 osize=0 = 5
        B 21-22 open other flags=301 mode=600 ino=8 omode=100600 osize=0 = 6
        B 30-40 write tmp/1 fd=5 ino=7 off=0 size=9 omode=100600 osize=9 = 9
        B 41-42 write other fd=6 ino=8 off=0 size=9 omode=100600 osize=9 = 9
        B 43-44 stat new = 0
        B 50-60 rename tmp/1 new/1 = 0
        B 61-62 close fd=5 ino=7 = 0
        B 63-64 close fd=6 ino=8 = 0
        A 70-80 stat new/1 ino=7 omode=100600 osize=9 = 0
    ";
    let kept = [
        "0 stat", "1 open", "1 write", "1 rename", "1 close", "0 stat",
    ];
    assert_eq!(of_first(script), kept);
}

#[test]
fn who_lists_a_directory_meets_what_others_put_there() {
    let script = "
        tree new mode=40755
        B 10-20 mknod new/1 mode=100600 ino=7 = 0
        B 30-40 mknod elsewhere mode=100600 ino=8 = 0
        A 50-60 getdents64 new fd=3 = 24
    ";
    let script = format!("A 0-5 stat x = -2\n{script}");
    assert_eq!(of_first(&script), ["0 stat", "1 mknod", "0 getdents64"]);
}

#[test]
fn what_was_in_a_directory_moves_with_it() {
    let script = "
        A 0-5 stat x = -2
        B 10-20 mkdir d mode=755 = 0
        B 30-40 mknod d/1 mode=100600 = 0
        B 50-60 rename d e = 0
        A 70-80 unlink e/1 = 0
    ";
    let kept = ["0 stat", "1 mkdir", "1 mknod", "1 rename", "0 unlink"];
    assert_eq!(of_first(script), kept);
}

#[test]
fn locks_of_others_and_their_end_are_kept() {
    let script = "
        A 0-5 open a flags=2 ino=7 omode=100644 osize=0 = 3
        B 10-12 open a flags=2 ino=7 omode=100644 osize=0 = 5
        B 13-15 open b flags=2 ino=8 omode=100644 osize=0 = 6
        B 20-25 fcntl fd=5 ino=7 cmd=6 lock=1 off=0 size=0 = 0
        B 26-28 fcntl fd=6 ino=8 cmd=6 lock=1 off=0 size=0 = 0
        A 30-60 fcntl fd=3 ino=7 cmd=7 lock=1 off=0 size=0 = 0
        B 40-50 close fd=5 ino=7 = 0
    ";
    let kept = ["0 open", "1 open", "1 fcntl", "0 fcntl", "1 close"];
    assert_eq!(of_first(script), kept);
}

#[test]
fn a_thread_is_forked_by_whom_it_was_and_has_what_was_open() {
    let script = "
        C 0-2 stat x = -2
        B 3-4 open a flags=2 ino=7 omode=100644 osize=0 = 3
        B 5-6 open b flags=2 ino=8 omode=100644 osize=0 = 4
        B 10-20 FORK D = 0
        D 30-40 ftruncate fd=3 ino=7 off=5 omode=100644 osize=5 = 0
        D 45-46 EXIT = 0
        B 47-48 stat y = -2
        C 50-60 stat a ino=7 omode=100644 osize=5 = 0
    ";
    let kept = [
        "0 stat",
        "1 open",
        "1 fork",
        "2 ftruncate",
        "2 exit",
        "0 stat",
    ];
    assert_eq!(of_first(script), kept);
}

#[test]
fn an_inode_number_that_is_used_again_does_not_tie_strangers() {
    let script = "
        A 0-5 stat x = -2
        B 10-20 open b flags=301 mode=600 ino=7 omode=100600 osize=0 = 5
        B 21-22 write b fd=5 ino=7 off=0 size=9 omode=100600 osize=9 = 9
        B 23-24 close fd=5 ino=7 = 0
        B 25-26 unlink b ino=7 = 0
        C 30-31 open c flags=301 mode=600 ino=7 omode=100600 osize=0 = 3
        C 32-33 write c fd=3 ino=7 off=0 size=5 omode=100600 osize=5 = 5
        C 34-35 close fd=3 ino=7 = 0
        A 40-41 stat c ino=7 omode=100600 osize=5 = 0
    ";
    let kept = ["0 stat", "2 open", "2 write", "2 close", "0 stat"];
    assert_eq!(of_first(script), kept);
}

#[test]
fn what_overlaps_the_making_of_a_file_is_about_it_if_only_that_explains_its_result() {
    let script = "
        A 0-1 stat x = -2
        B 0-1 open a flags=2 ino=7 omode=100644 osize=0 = 5
        B 2-3 ftruncate fd=5 ino=7 off=5 omode=100644 osize=5 = 0
        B 4-5 close fd=5 ino=7 = 0
        B 10-11 unlink a ino=7 = 0
        C 12-30 open c flags=301 mode=600 ino=7 omode=100600 osize=0 = 3
        A 20-21 stat c ino=7 omode=100600 osize=0 = 0
    ";
    let kept = ["0 stat", "2 open", "0 stat"];
    assert_eq!(of_first(script), kept);
}

#[test]
fn what_others_change_later_is_not_needed() {
    let script = "
        A 0-5 open a flags=0 ino=7 omode=100644 osize=0 = 3
        A 10-20 stat a ino=7 omode=100644 osize=0 = 0
        B 15-16 open a flags=2 ino=7 omode=100644 osize=0 = 5
        B 18-30 fchmod fd=5 ino=7 mode=600 omode=100600 osize=0 = 0
        B 31-32 ftruncate fd=5 ino=7 off=5 omode=100600 osize=5 = 0
        B 33-34 close fd=5 ino=7 = 0
        B 35-36 unlink a ino=7 = 0
    ";
    let kept = ["0 open", "0 stat"];
    assert_eq!(of_first(script), kept);
}

#[test]
fn what_the_source_of_a_clone_holds_is_given() {
    let file = |ino: u32| format!("ino={ino} omode=100600");
    let (mail, copy) = (file(7), file(8));
    let script = format!(
        "
        A 0-1 stat x = -2
        B 2-5 open mail flags=301 mode=600 {mail} osize=0 = 5
        A 10-15 open mail flags=0 {mail} osize=0 = 3
        A 16-17 open copy flags=301 mode=600 {copy} osize=0 = 4
        B 20-25 pwrite64 mail fd=5 {mail} off=0 size=9 osize=9 = 9
        A 30-35 ioctl copy fd=4 fd2=3 cmd=1074041865 {copy} osize=9 = 0
        B 40-45 pwrite64 mail fd=5 {mail} off=9 size=9 osize=18 = 9
        A 50-55 fstat copy fd=4 {copy} osize=9 = 0
        "
    );
    let kept = of_first(&script);
    assert!(kept.contains(&"0 ioctl".to_string()), "{kept:?}");
    let writes = kept.iter().filter(|call| call.ends_with("pwrite64"));
    assert_eq!(writes.count(), 1, "{kept:?}");
}

#[test]
fn what_changed_the_named_file_or_refused_the_chosen_is_given() {
    let script = "
        tree d mode=40755
        tree d/f ino=7
        tree other ino=8
        A 0-5 stat x = -2
        B 10-20 chmod d mode=700 = 0
        B 30-40 chmod other mode=700 = 0
        A 50-60 open d/f flags=0 = -13
        B 70-80 truncate d/f off=3 = 0
        B 90-100 chown other arg=1 = 0
        A 110-120 stat d/f ino=7 omode=100644 osize=3 = 0
    ";
    let kept = ["0 stat", "1 chmod", "0 open", "1 truncate", "0 stat"];
    assert_eq!(of_first(script), kept);
}
