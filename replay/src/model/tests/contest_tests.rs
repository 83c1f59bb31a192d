//! Turns of operations where many competed for the same names.

use crate::model::tests::order_tests::{edges, order};

/// Returns whether `one` comes before `other`.
fn comes_before(script: &str, one: u32, other: u32) -> bool {
    let (order, unexplained) = order(script);
    assert_eq!(unexplained, 0);
    let place = |op| order.iter().position(|at| *at == op);
    place(one) < place(other)
}

const MADE: &str = "flags=301 mode=600 omode=100600 osize=0 = 3";

/// Returns whether a directory was moved after a file was made in it, as later calls `after` show.
fn made_before_the_move(after: &str) -> bool {
    made_before_the_move_with("n", after)
}

fn made_before_the_move_with(other: &str, after: &str) -> bool {
    let look = |at| format!("B {at}-{at} stat box = -2\n");
    let script = format!(
        "A 0-1 mkdir box = 0
         A 2-3 openat {other} ino=6 {MADE}
         A 10-90 rename box trash = 0
         C 20-400 open box/m ino=7 {MADE}
         B 100-110 mkdir box = 0
         D 300-390 rename box trash2 = 0
         {}
         {after}",
        (500..600).map(look).collect::<String>()
    );
    comes_before(&script, 3, 2)
}

#[test]
fn who_cannot_remove_a_moved_directory_tells_what_was_made_in_it() {
    assert!(made_before_the_move("A 2000-2010 rmdir trash = -39"));
    assert!(!made_before_the_move("A 2000-2010 rmdir trash2 = -39"));
}

#[test]
fn who_removes_a_moved_directory_tells_what_was_not_made_in_it() {
    assert!(!made_before_the_move("A 2000-2010 rmdir trash = 0"));
    assert!(made_before_the_move("A 2000-2010 rmdir trash2 = 0"));
}

#[test]
fn what_is_found_in_a_moved_directory_was_made_in_it() {
    let emptied = |name| format!("A 2000-2010 unlink {name}/m ino=7 = 0");
    assert!(made_before_the_move(&emptied("trash")));
    assert!(!made_before_the_move(&emptied("trash2")));
    let and_removed = "A 2000-2010 unlink trash/m = -2\n A 2020-2030 rmdir trash = 0";
    assert!(!made_before_the_move(and_removed));
}

#[test]
fn what_was_taken_out_of_a_moved_directory_does_not_fill_it() {
    let made_before = |ret| {
        let emptied = "A 2000-2010 unlink trash/n ino=6 = 0";
        let after = format!("{emptied}\nA 2020-2030 rmdir trash = {ret}");
        made_before_the_move_with("box/n", &after)
    };
    assert!(made_before(-39));
    assert!(!made_before(0));
}

#[test]
fn who_finds_a_number_that_was_given_again_finds_the_new_file() {
    let script = format!(
        "A 0-1 open tmp/a ino=7 {MADE}
         B 4-5 open tmp/b ino=8 {MADE}
         A 10-300 rename tmp/a hot = 0
         B 20-400 rename tmp/b hot = 0
         C 200-210 open tmp/c ino=7 {MADE}
         C 220-350 rename tmp/c hot = 0
         D 230-240 open hot flags=0 ino=7 omode=100600 osize=0 = 4"
    );
    assert!(comes_before(&script, 5, 6));
}

#[test]
fn a_name_that_mattered_to_nobody_here_does_not_keep_a_number() {
    // C, F and G remove files under names that their links did not reach.
    let losers = [("C", 7), ("F", 8), ("G", 9)];
    let lines =
        |line: &dyn Fn(&str, u32) -> String| losers.map(|(loser, ino)| line(loser, ino)).join("\n");
    let taken = |ino| {
        format!(
            "D {ino}0-{ino}1 open tmp/d{ino} ino={ino} {MADE}
             D {ino}2-{ino}3 link tmp/d{ino} lock = 0
             D {ino}4-{ino}5 unlink lock = 0"
        )
    };
    let script = format!(
        "A 0-1 open tmp/a ino=5 {MADE}
         B 2-3 open tmp/b ino=6 {MADE}
         {}
         A 10-900 link tmp/a lock = 0
         B 20-30 link tmp/b lock = 0
         {}
         B 40-50 unlink lock = 0
         {}
         {}
         E 800-810 link tmp/e lock = -17
         A 910-920 unlink lock = 0",
        lines(&|who, ino| format!("{who} 4-5 open tmp/{who} ino={ino} {MADE}")),
        lines(&|who, _| format!("{who} 25-35 link tmp/{who} lock = -17")),
        lines(&|who, ino| format!("{who} 60-65 unlink tmp/{who} ino={ino} = 0")),
        lines(&|_, ino| taken(ino)),
    );
    assert!(comes_before(&script, 21, 5));
}

#[test]
fn who_comes_after_a_contest_and_lasts_long_may_tell_its_end() {
    // B removes its own file, so A had removed its own before, though B's was found while A did.
    let cycle = |at: u32| {
        format!(
            "D {at}00-{at}01 open tmp/d{at} ino={at} {MADE}
             D {at}02-{at}03 rename tmp/d{at} hot = 0
             D {at}04-{at}05 open hot flags=0 ino={at} omode=100600 osize=0 = 3
             D {at}06-{at}07 unlink hot ino={at} = 0"
        )
    };
    let script = format!(
        "A 0-1 open tmp/a ino=5 {MADE}
         B 2-3 open tmp/b ino=6 {MADE}
         C 4-5 open tmp/c ino=7 {MADE}
         A 10-20 rename tmp/a hot = 0
         A 22-23 open hot flags=0 ino=5 omode=100600 osize=0 = 3
         B 30-100 rename tmp/b hot = 0
         A 40-110 unlink hot = 0
         B 105-112 open hot flags=0 ino=6 omode=100600 osize=0 = 3
         B 120-9999 unlink hot = 0
         C 130-140 rename tmp/c hot = 0
         C 150-160 open hot flags=0 ino=7 omode=100600 osize=0 = 3
         C 170-180 unlink hot = 0
         {}",
        (10..120).map(cycle).collect::<Vec<_>>().join("\n")
    );
    assert!(comes_before(&script, 6, 5));
}

#[test]
fn a_number_is_given_again_when_no_name_has_it() {
    // E finds the file that A put there, so all are put in order before C has its file.
    let script = format!(
        "A 0-1 open tmp/a ino=7 {MADE}
         B 4-5 open tmp/b ino=8 {MADE}
         A 10-300 rename tmp/a hot = 0
         B 20-400 rename tmp/b hot = 0
         C 50-210 open tmp/c ino=7 {MADE}
         E 60-70 stat x = -2
         E 100-110 open hot flags=0 ino=7 omode=100600 osize=0 = 3
         C 220-350 rename tmp/c hot = 0
         D 230-240 open hot flags=0 ino=7 omode=100600 osize=0 = 4"
    );
    assert!(comes_before(&script, 3, 4));
    assert!(comes_before(&script, 7, 8));
}

#[test]
fn a_rename_between_two_names_of_one_file_leaves_both() {
    let script = format!(
        "B 0-1 openat f ino=12 {MADE}
         A 100-101 openat t ino=13 {MADE}
         A 110-140 openat f flags=2 ino=12 omode=100600 osize=0 = 4
         C 50-200 rename t f = 0
         B 190-900 unlink f = 0
         C 300-301 openat f flags=2 ino=13 omode=100600 osize=0 = 3
         C 310-311 link f t = 0
         C 400-401 rename f t = 0
         C 410-411 openat f flags=2 ino=13 omode=100600 osize=0 = 4
         C 420-421 unlink t = 0
         C 430-431 stat f ino=13 omode=100600 osize=0 = 0
         D 1000-1001 stat f = -2"
    );
    assert!(!edges(&script).contains(&(11, 7)));
    assert!(comes_before(&script, 7, 4));
}

#[test]
fn a_size_is_seen_after_the_change_that_a_contest_for_the_name_left_for_later() {
    let script = format!(
        "A 0-1 openat f ino=5 {MADE}
         D 10-900 rename f g = 0
         B 100-300 truncate f off=1512 = 0
         C 200-210 stat f ino=5 omode=100600 osize=1512 = 0"
    );
    assert!(comes_before(&script, 2, 3));
}

#[test]
fn an_open_that_found_its_file_makes_no_name_and_is_held_back_by_none() {
    let script = format!(
        "A 0-1 openat b ino=5 {MADE}
         A 2-3 write b fd=3 ino=5 off=0 size=100 osize=100 omode=100600 = 100
         A 4-5 openat t ino=6 {MADE}
         B 10-900 openat b flags=1102 ino=5 omode=100600 osize=0 = 4
         A 20-21 stat b ino=5 omode=100600 osize=0 = 0
         A 30-31 rename t a = 0"
    );
    assert!(comes_before(&script, 3, 4));
}

#[test]
fn a_size_tells_the_order_where_no_name_changes() {
    let script = format!(
        "A 0-1 openat a ino=5 {MADE}
         A 5-50 openat a flags=1102 ino=5 omode=100600 osize=0 = 4
         B 10-100 truncate a off=1731 = 0
         A 60-61 write a fd=4 ino=5 off=0 size=700 osize=700 omode=100600 = 700
         A 70-71 fstat a fd=4 ino=5 omode=100600 osize=700 = 0
         B 110-111 stat a ino=5 omode=100600 osize=1731 = 0"
    );
    assert!(comes_before(&script, 4, 2));
}

#[test]
fn changes_of_other_names_in_a_contest_hold_nothing_back() {
    // The rename of t is in the contest of a, through B's rename; that has nothing to do with b.
    let script = format!(
        "A 0-1 openat b ino=5 {MADE}
         A 2-3 write b fd=3 ino=5 off=0 size=100 osize=100 omode=100600 = 100
         A 4-5 openat t ino=6 {MADE}
         B 6-7 openat u ino=7 {MADE}
         C 10-900 openat b flags=1102 ino=5 omode=100600 osize=0 = 4
         B 15-60 rename u a = 0
         A 20-21 stat b ino=5 omode=100600 osize=0 = 0
         A 30-50 rename t a = 0
         A 70-71 link b c = 0
         A 80-81 unlink c = 0"
    );
    assert!(comes_before(&script, 4, 6));
}

#[test]
fn an_exchange_in_vain_comes_when_one_of_its_names_is_missing() {
    let script = format!(
        "A 0-1 openat a ino=5 {MADE}
         A 2-3 openat b ino=6 {MADE}
         A 10-50 renameat2 a b flags=2 = -2
         B 20-60 unlink b = 0
         B 70-80 stat a ino=5 omode=100600 osize=0 = 0"
    );
    assert!(comes_before(&script, 3, 2));
}
