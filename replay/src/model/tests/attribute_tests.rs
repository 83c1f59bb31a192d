//! Modes, owners, times and extended attributes as part of the order.

use crate::model::tests::order_tests::{edges, order};

#[test]
fn who_changes_a_mode_waits_for_who_changed_it_before() {
    let script = "
        tree f ino=5
        A 0-10 chmod f mode=700 = 0
        B 20-30 chmod f mode=755 = 0
        C 40-50 chown f arg=1 = 0
        D 60-70 utimensat f = 0
        E 80-90 setxattr f system.posix_acl_access size=44 = 0
    ";
    // The change before the last one is waited for, too: calls that overlap the last depend on it.
    let all = [(1, 0), (2, 0), (2, 1), (3, 1), (3, 2), (4, 2), (4, 3)];
    assert_eq!(edges(script), all);
}

#[test]
fn other_names_of_a_file_are_the_same_file() {
    let script = "
        tree f ino=5
        A 0-10 stat f ino=5 omode=100644 = 0
        A 20-30 link f g ino=5 = 0
        A 40-50 chmod f mode=700 = 0
        B 60-70 chmod g mode=755 = 0
        C 80-90 fchmod fd=3 ino=5 mode=700 = 0
        D 100-110 stat f ino=5 omode=100755 = 0
    ";
    assert_eq!(edges(script), [(3, 2), (4, 2), (4, 3)]);
}

#[test]
fn changes_that_overlapped_end_in_the_order_found() {
    let script = "
        tree f ino=5
        A 0-30 chmod f mode=700 = 0
        B 10-20 chmod f mode=755 = 0
    ";
    assert_eq!(edges(script), [(0, 1)]);
}

#[test]
fn a_refusal_waits_for_the_modes_on_its_way_and_is_waited_for() {
    let script = "
        tree d mode=40755
        tree d/e mode=40755
        tree d/e/f ino=5
        A 0-10 chmod d mode=700 = 0
        B 20-30 open d/e/f flags=0 = -13
        C 40-50 chmod d mode=755 = 0
        D 60-70 chmod d/e/f mode=600 = 0
    ";
    assert_eq!(edges(script), [(1, 0), (2, 0), (2, 1), (3, 1)]);
}

#[test]
fn both_names_of_a_call_may_have_been_refused() {
    let script = "
        tree d mode=40755
        tree e mode=40755
        tree d/f ino=5
        A 0-10 chmod e mode=555 = 0
        B 20-30 rename d/f e/f = -13
        C 40-50 fchmod fd=3 ino=5 mode=600 = 0
        D 60-70 fchmod fd=3 ino=5 mode=600 = -1
        E 80-90 chmod e mode=755 = 0
    ";
    assert_eq!(edges(script), [(1, 0), (2, 1), (3, 2), (4, 0), (4, 1)]);
}

#[test]
fn a_refusal_through_a_symlink_follows_what_that_says() {
    let script = "
        tree d mode=40755
        tree d/f ino=5
        tree l mode=120777 target=d
        A 0-10 chmod d mode=700 = 0
        B 20-30 open l/f flags=0 = -13
    ";
    assert_eq!(edges(script), [(1, 0)]);
}

#[test]
fn who_was_led_round_and_round_met_every_symlink() {
    let script = "
        tree d mode=40755
        A 0-10 symlink d/b a = 0
        B 20-30 symlink d/a b = 0
        C 40-50 stat d/a = -40
        D 60-70 unlink d/b = 0
        D 80-90 unlink d/a = 0
    ";
    assert_eq!(edges(script), [(2, 0), (2, 1), (3, 0), (3, 2), (4, 1)]);
}

#[test]
fn what_is_made_may_get_the_group_of_its_directory() {
    let script = "
        tree d mode=40755 ino=4
        A 0-10 chmod d mode=2755 = 0
        B 20-30 open d/f flags=101 mode=600 ino=5 = 3
        C 40-50 chown d arg=1 = 0
    ";
    assert_eq!(edges(script), [(1, 0), (2, 0), (2, 1)]);
    let plain = script.replace("2755", "755");
    assert_eq!(edges(&plain), [(2, 0)]);
}

#[test]
fn extended_attributes_are_those_of_the_file_and_listed_together() {
    let script = "
        tree f ino=5
        A 0-10 link f g ino=5 = 0
        A 20-30 setxattr f user.a size=5 = 0
        B 40-50 setxattr g user.b size=5 = 0
        C 60-70 getxattr g user.a size=100 = 5
        D 80-90 listxattr f size=100 = 14
        E 100-110 removexattr g user.a = 0
    ";
    assert_eq!(
        edges(script),
        [(2, 0), (3, 1), (4, 1), (4, 2), (5, 1), (5, 3), (5, 4)]
    );
}

#[test]
fn times_come_after_what_was_written_before_and_before_what_is_written_later() {
    let script = "
        tree f ino=5 size=0
        A 0-10 pwrite64 f fd=3 ino=5 off=0 size=5 osize=5 omode=100644 = 5
        B 20-30 utimensat f = 0
        C 40-50 truncate f off=2 = 0
        D 60-70 utimensat f = 0
    ";
    assert_eq!(order(script).1, 0);
    assert_eq!(
        edges(script),
        [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    );
}

#[test]
fn data_without_inodes_is_that_of_the_file() {
    let script = "
        A 0-10 open f flags=101 mode=600 osize=0 omode=100600 = 3
        A 20-30 write f fd=3 off=0 size=5 osize=5 omode=100600 = 5
        B 40-50 open f flags=1 osize=5 omode=100600 = 3
        B 60-70 write f fd=3 off=0 size=9 osize=9 omode=100600 = 9
        C 80-90 truncate f off=2 = 0
    ";
    assert_eq!(edges(script), [(2, 0), (3, 1), (4, 1), (4, 3)]);
}

#[test]
fn a_refusal_that_overlapped_what_explains_it_comes_after_that() {
    let script = "
        tree d mode=40755
        tree d/f ino=5
        A 0-1 setuid arg=1000 = 0
        B 10-50 chmod d mode=700 = 0
        A 20-30 open d/f flags=0 = -13
        B 60-90 chmod d mode=755 = 0
        A 70-100 open d/f flags=0 = -13
    ";
    assert_eq!(order(script), (vec![0, 1, 2, 4, 3], 0));
    assert_eq!(edges(script), [(2, 1), (3, 4)]);
}
