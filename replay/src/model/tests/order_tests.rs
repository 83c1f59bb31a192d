//! Order rules on plans of a few lines.

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::plan::Plan;
use crate::testing::plan;

const CREATE_EXCL: &str = "flags=301";

/// Returns the operations in the order found, as indices of lines; and how many stay unexplained.
pub(in crate::model) fn order(script: &str) -> (Vec<u32>, usize) {
    let plan = plan(script);
    let linear = Linear::walk(&plan);
    (linear.order.clone(), linear.unexplained.len())
}

/// Returns (waiting operation, awaited operation) for every edge.
pub(in crate::model) fn edges(script: &str) -> Vec<(u32, u32)> {
    let plan = plan(script);
    pairs(&plan, &Linear::walk(&plan).edges.found)
}

pub(in crate::model) fn pairs(plan: &Plan, found: &[(u32, u32, u32)]) -> Vec<(u32, u32)> {
    let op_at = |thread: u32, finished: u32| {
        let mut stream =
            (0..plan.ops().len() as u32).filter(|at| plan.ops()[*at as usize].thread == thread);
        stream
            .nth(finished as usize - 1)
            .expect("within the stream")
    };
    let mut pairs: Vec<(u32, u32)> = found
        .iter()
        .map(|(op, thread, finished)| (*op, op_at(*thread, *finished)))
        .collect();
    pairs.sort_unstable();
    pairs
}

fn names(tree: &Tree) -> Vec<String> {
    tree.names
        .keys()
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

#[test]
fn the_recorded_winner_of_a_rename_race_goes_first() {
    // Both overlap; A returns last but won, or B could not have failed.
    let script = "
        A 0-100 rename new/m cur/m = 0
        B 10-50 rename new/m cur/m:S = -2
    ";
    assert_eq!(order(script), (vec![0, 1], 0));
    assert_eq!(edges(script), [(1, 0)]);
}

#[test]
fn the_loser_of_an_exclusive_create_comes_after_the_winner() {
    let script = format!(
        "A 0-100 openat l {CREATE_EXCL} = 3
         B 10-20 openat l {CREATE_EXCL} = -17"
    );
    assert_eq!(order(&script), (vec![0, 1], 0));
    assert_eq!(edges(&script), [(1, 0)]);
}

#[test]
fn dotlocks_alternate_even_if_their_calls_overlap() {
    // B's create overlaps A's unlink and ends first: the unlink must have come before it.
    let script = format!(
        "A 0-10 openat lock {CREATE_EXCL} ino=5 = 3
         A 20-60 unlink lock = 0
         B 30-50 openat lock {CREATE_EXCL} ino=5 = 3
         B 70-80 unlink lock = 0
         A 90-95 openat lock {CREATE_EXCL} ino=6 = 3"
    );
    assert_eq!(order(&script), (vec![0, 1, 2, 3, 4], 0));
    assert_eq!(edges(&script), [(2, 1), (4, 3)]);
}

#[test]
fn a_call_that_found_nothing_ran_in_the_gap() {
    // The stat overlaps both the rename away and the rename back.
    let script = "
        A 0-30 rename a b = 0
        B 10-90 stat a = -2
        A 40-100 rename b a = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(1, 0), (2, 1)]);
}

#[test]
fn one_that_still_saw_the_old_state_goes_before_the_change() {
    let script = "
        B 0-100 stat a ino=7 omode=100644 osize=5 = 0
        A 10-20 unlink a = 0
        C 30-40 stat a = -2
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(1, 0), (2, 1)]);
}

#[test]
fn replacing_by_rename_shows_in_the_inode() {
    let script = "
        tree list ino=1
        tree list.tmp ino=2
        A 0-50 rename list.tmp list = 0
        B 10-20 openat list ino=2 = 3
        C 15-60 openat list ino=1 = 3
    ";
    let (order, unexplained) = order(script);
    assert_eq!((order, unexplained), (vec![2, 0, 1], 0));
}

#[test]
fn overlapping_calls_that_do_not_conflict_stay_free() {
    let script = "
        A 0-50 rename a b = 0
        B 10-20 rename c d = 0
        C 12-30 stat e = -2
        B 60-70 stat e = -2
    ";
    assert_eq!(edges(script), []);
}

#[test]
fn a_short_read_tells_which_append_it_missed() {
    let script = "
        A 0-5 openat f flags=102 ino=9 omode=100644 osize=0 = 3
        A 6-10 write fd=3 ino=9 omode=100644 off=0 size=10 osize=10 = 10
        A 20-60 write fd=3 ino=9 omode=100644 off=10 size=10 osize=20 = 10
        B 30-70 read fd=4 ino=9 omode=100644 off=0 size=100 osize=20 = 10
        C 30-50 read fd=4 ino=9 omode=100644 off=0 size=100 osize=20 = 20
    ";
    assert_eq!(order(script), (vec![0, 1, 3, 2, 4], 0));
    assert_eq!(edges(script), [(2, 3), (3, 1), (4, 2)]);
}

#[test]
fn removing_a_directory_waits_for_what_was_done_in_it() {
    let script = "
        A 0-10 mkdir d = 0
        B 20-30 mkdir d/e = 0
        B 40-50 rmdir d/e = 0
        A 60-70 rmdir d = 0
        B 80-90 stat d/e = -2
    ";
    assert_eq!(edges(script), [(1, 0), (3, 2), (4, 3)]);
}

#[test]
fn a_child_begins_after_its_fork_even_if_that_returns_late() {
    let script = "
        A 0-100 FORK B
        B 20-30 stat x = -2
        B 40-50 EXIT
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
}

#[test]
fn flags_that_one_process_sets_are_those_of_the_next_write_of_another() {
    let append = libc::O_APPEND;
    let script = format!(
        "A 0-1 openat f flags=101 ino=7 = 3
         A 2-3 FORK B = 0
         B 10-11 fcntl fd=3 cmd=4 arg={append} ino=7 = 0
         A 20-21 write f fd=3 ino=7 size=5 osize=5 = 5"
    );
    assert!(edges(&script).contains(&(3, 2)));
}

#[test]
fn the_first_result_corrects_a_snapshot_taken_under_way() {
    // The snapshot shows what the operations had already done.
    let plan = plan(
        "tree cur/m ino=7 size=100
         tree made ino=8
         A 0-10 rename new/m cur/m = 0
         A 20-30 openat made flags=301 ino=8 = 3
         A 40-50 stat gone ino=9 omode=100600 osize=12 = 0
         A 60-70 unlink gone = 0",
    );
    let linear = Linear::walk(&plan);
    assert_eq!(linear.unexplained, [0; 0]);
    let first = Tree::initial(&plan, &linear.world);
    assert_eq!(names(&first), ["cur", "gone", "new", "new/m"]);
    assert_eq!(
        first.things[first.names[b"gone".as_slice()]]
            .attributes
            .size,
        12
    );
    assert_eq!(
        first.things[first.names[b"new/m".as_slice()]]
            .attributes
            .size,
        100
    );
    let last = Tree::expected(&plan, &linear.world);
    assert_eq!(names(&last), ["cur", "cur/m", "made", "new"]);
}

#[test]
fn a_moved_directory_takes_its_names_along() {
    let plan = plan(
        "tree box mode=40755 ino=1
         tree box/a ino=2 size=3
         tree box/sub mode=40755 ino=3
         tree box/sub/b ino=4
         A 0-10 stat box/a ino=2 omode=100644 osize=3 = 0
         A 20-30 rename box trash = 0
         A 40-50 unlink trash/a = 0",
    );
    let linear = Linear::walk(&plan);
    assert_eq!(linear.unexplained, [0; 0]);
    let last = Tree::expected(&plan, &linear.world);
    assert_eq!(names(&last), ["trash", "trash/sub", "trash/sub/b"]);
}

#[test]
fn a_directory_made_moved_and_removed_again_and_again_was_not_there() {
    let once = |at: u32| {
        format!(
            "A {}-{} mkdir box/f/new = -2
             A {}-{} mkdir box/f = 0
             A {}-{} mkdir box/f/new = 0
             A {}-{} openat box/f/new/m flags=101 ino=18 omode=100644 osize=0 = 3
             A {}-{} rename box/f box/trash = 0
             A {}-{} unlink box/trash/new/m = 0
             A {}-{} rmdir box/trash/new = 0
             A {}-{} rmdir box/trash = 0
             ",
            at,
            at + 1,
            at + 2,
            at + 3,
            at + 4,
            at + 5,
            at + 6,
            at + 7,
            at + 8,
            at + 9,
            at + 10,
            at + 11,
            at + 12,
            at + 13,
            at + 14,
            at + 15
        )
    };
    let plan = plan(&(once(0) + &once(100)));
    let linear = Linear::walk(&plan);
    assert_eq!(linear.unexplained, [0; 0]);
    assert_eq!(names(&Tree::initial(&plan, &linear.world)), ["box"]);
    assert_eq!(names(&Tree::expected(&plan, &linear.world)), ["box"]);
}

#[test]
fn a_stat_that_saw_an_append_under_way_comes_after_it() {
    let script = "
        A 0-5 openat f flags=2102 ino=9 omode=100644 osize=0 = 3
        A 6-10 write fd=3 ino=9 omode=100644 off=0 size=10 osize=10 = 10
        A 20-90 write fd=3 ino=9 omode=100644 off=0 size=10 osize=20 = 10
        B 30-40 openat f flags=0 ino=9 omode=100644 osize=20 = 3
        B 50-60 stat f ino=9 omode=100644 osize=20 = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 3, 2, 4], 0));
    assert_eq!(edges(script), [(3, 0), (4, 2)]);
}

#[test]
fn every_removal_of_a_replaced_name_finds_its_own_file() {
    // By their ends both renames come first, and nothing is left for the second unlink.
    let script = "
        A 0-100 rename a hot = 0
        B 0-110 rename b hot = 0
        C 0-120 unlink hot = 0
        D 0-130 unlink hot = 0
    ";
    let (order, unexplained) = order(script);
    assert_eq!(unexplained, 0);
    let place = |at: u32| order.iter().position(|op| *op == at).expect("placed");
    let mut renames = [place(0), place(1)];
    let mut unlinks = [place(2), place(3)];
    renames.sort_unstable();
    unlinks.sort_unstable();
    assert!(renames[0] < unlinks[0] && unlinks[0] < renames[1] && renames[1] < unlinks[1]);
}

#[test]
fn what_comes_later_tells_how_a_race_ended() {
    // Either rename could have been last, until a call opens the name.
    for (ino, order_found) in [(1, vec![1, 0, 2]), (2, vec![0, 1, 2])] {
        let script = format!(
            "tree a ino=1
             tree b ino=2
             A 0-100 rename a hot = 0
             B 0-110 rename b hot = 0
             C 200-210 openat hot ino={ino} = 3"
        );
        assert_eq!(order(&script), (order_found, 0));
    }
}

#[test]
fn a_directory_found_full_still_held_what_was_about_to_go() {
    let script = format!(
        "A 0-10 mkdir d = 0
         A 20-30 openat d/m {CREATE_EXCL} = 3
         A 40-90 unlink d/m = 0
         B 50-100 rmdir d = -39
         B 110-120 rmdir d = 0"
    );
    assert_eq!(order(&script), (vec![0, 1, 3, 2, 4], 0));
    assert_eq!(edges(&script), [(2, 3), (3, 1), (4, 2)]);
}

#[test]
fn a_file_that_could_not_be_made_missed_its_directory() {
    let script = format!(
        "A 0-10 mkdir d = 0
         A 20-60 rmdir d = 0
         B 30-90 openat d/m {CREATE_EXCL} = -2
         A 70-100 mkdir d = 0
         A 110-120 rmdir d = 0"
    );
    assert_eq!(order(&script), (vec![0, 1, 2, 3, 4], 0));
    assert_eq!(edges(&script), [(2, 1), (3, 2)]);
}

#[test]
fn a_name_below_what_was_no_directory_came_while_the_file_was_there() {
    let script = format!(
        "A 0-10 openat d {CREATE_EXCL} = 3
         A 20-60 unlink d = 0
         B 30-90 openat d/m flags=0 = -20
         A 70-100 mkdir d = 0"
    );
    assert_eq!(order(&script), (vec![0, 2, 1, 3], 0));
    assert_eq!(edges(&script), [(1, 2), (2, 0)]);
}

#[test]
fn a_folder_moved_away_takes_its_names_along_in_a_race() {
    let script = format!(
        "A 0-10 mkdir box = 0
         A 20-30 openat box/m {CREATE_EXCL} = 3
         A 40-90 rename box trash = 0
         B 50-60 unlink box/m = -2
         B 62-70 mkdir box = 0
         B 72-80 rmdir box = 0
         C 55-85 rmdir trash = -39"
    );
    let (order, unexplained) = order(&script);
    assert_eq!((&order[..4], unexplained), (&[0, 1, 2, 3][..], 0));
}

#[test]
fn a_result_nobody_can_explain_does_not_spoil_the_rest() {
    let script = "
        D 0-1 stat hot = -2
        A 10-100 rename a hot = 0
        B 10-110 unlink hot = 0
        C 10-120 unlink hot = 0
        D 130-140 rename b hot = 0
        D 150-160 unlink hot = 0
    ";
    let (order, unexplained) = order(script);
    assert_eq!(unexplained, 1);
    assert_eq!(&order[4..], [4, 5]);
}

#[test]
fn appends_at_unknown_places_make_the_file_longer_all_the_same() {
    let plan = plan(
        "
        A 0-5 openat f flags=2102 ino=9 osize=0 = 3
        A 6-50 write fd=3 ino=9 off=-1 size=10 osize=-1 = 10
        B 7-40 write fd=3 ino=9 off=-1 size=20 osize=-1 = 20
        A 60-70 fstat fd=3 ino=9 omode=100644 osize=30 = 0
    ",
    );
    let linear = Linear::walk(&plan);
    let tree = Tree::expected(&plan, &linear.world);
    assert_eq!(tree.bytes(), 30);
    assert!(tree.things.iter().all(|thing| thing.blurred));
}

#[test]
fn bytes_written_at_once_through_one_position_are_not_predicted() {
    let script = |second: &str| {
        format!(
            "A 0-1 openat box flags=101 ino=4 = 3
             A 2-3 FORK B = 0
             A 10-30 write fd=3 ino=4 size=100 off=0 osize=300 = 100
             B {second} write fd=3 ino=4 size=200 off=100 osize=300 = 200"
        )
    };
    let blurred = |second| {
        let plan = plan(&script(second));
        let tree = Tree::expected(&plan, &Linear::walk(&plan).world);
        tree.things.iter().any(|thing| thing.blurred)
    };
    assert!(blurred("20-40"));
    assert!(!blurred("31-40"));
}

#[test]
fn a_first_append_may_show_the_second_one_too() {
    let sizes = |second: &str| {
        let plan = plan(&format!(
            "
            tree f ino=4 size=90
            A 0-1 openat f flags=2001 ino=4 = 3
            A 2-3 FORK B = 0
            A 10-20 write fd=3 ino=4 size=10 osize={second} = 10
            B 30-40 write fd=3 ino=4 size=10 osize=120 = 10
            A 50-60 write fd=3 ino=4 size=10 osize=130 = 10
            "
        ));
        let linear = Linear::walk(&plan);
        let (before, after) = (
            Tree::initial(&plan, &linear.world),
            Tree::expected(&plan, &linear.world),
        );
        let blurred = after.things.iter().any(|thing| thing.blurred);
        (before.bytes(), after.bytes(), blurred)
    };
    assert_eq!(sizes("110"), (100, 130, false));
    assert_eq!(sizes("120"), (100, 130, true));
}

#[test]
fn what_is_in_a_directory_must_explain_whether_it_can_be_removed() {
    let unexplained = |script: &str| order(script).1;
    assert_eq!(unexplained("A 0-1 mkdir d = 0\nA 2-3 rmdir d = -39"), 1);
    let filled = "A 0-1 mkdir d = 0\nA 2-3 openat d/x flags=301 = 3\n";
    assert_eq!(unexplained(&format!("{filled} A 4-5 rmdir d = -39")), 0);
    assert_eq!(unexplained(&format!("{filled} A 4-5 rmdir d = 0")), 1);
    let emptied = format!("{filled} A 4-5 rename d e = 0\nA 6-7 unlink e/x = 0\n");
    assert_eq!(unexplained(&format!("{emptied} A 8-9 rmdir e = 0")), 0);
    assert_eq!(unexplained(&format!("{emptied} A 8-9 rmdir e = -39")), 1);
    // A directory that was there at the start may have held unknown names.
    assert_eq!(unexplained("A 2-3 rmdir d = -39"), 0);
    assert_eq!(unexplained("tree d mode=40755\nA 2-3 rmdir d = -39"), 0);
}

#[test]
fn what_is_read_before_anything_was_written_was_there_at_the_beginning() {
    let at_start = |size: &str, between: &str| {
        let script = format!(
            "A 0-1 openat a flags=102 mode=600 ino=7 omode=100600 {size} = 3
             {between}
             A 20-30 read a fd=3 ino=7 size=50 = 9"
        );
        let plan = plan(&script);
        names(&Tree::initial(&plan, &Linear::walk(&plan).world)) == ["a"]
    };
    assert!(at_start("", ""));
    assert!(!at_start("", "A 10-11 write a fd=3 ino=7 size=9 = 9"));
    assert!(!at_start(
        "",
        "A 10-11 copy_file_range b fd=4 fd2=3 size=9 arg=0 = 9"
    ));
    assert!(at_start("osize=9", ""));
    // The file was empty when it was opened: another process has written.
    assert!(!at_start("osize=0", ""));
}

#[test]
fn a_directory_may_have_the_number_of_a_file_that_is_gone() {
    // mkdir records no inode number; calls on the directory do.
    let plan = plan(
        "A 0-1 openat f flags=301 mode=600 ino=9 omode=100600 osize=0 = 3
         A 2-3 close f fd=3 ino=9 = 0
         A 4-5 unlink f = 0
         A 6-7 mkdir d mode=700 = 0
         A 8-9 openat d flags=200000 ino=9 omode=40700 = 3
         A 10-11 fchmod d fd=3 ino=9 omode=40700 mode=755 = 0",
    );
    let tree = Tree::expected(&plan, &Linear::walk(&plan).world);
    assert_eq!(names(&tree), ["d"]);
    let mode = tree.things[tree.names[&b"d"[..]]].attributes.mode;
    assert_eq!(mode, 0o40_755);
}

#[test]
fn files_belong_to_who_their_thread_was_then() {
    const UNCHANGED: u32 = u32::MAX;
    let group = 6_i64 << 32;
    let script = format!(
        "A 0-1 setresuid arg=5 = 0
         A 1-2 setresgid arg={group} = 0
         A 2-3 setresuid arg={UNCHANGED} = 0
         A 3-4 setuid arg=7 = -1
         A 5-6 openat a {CREATE_EXCL} = 3
         A 6-7 setfsuid arg=0 = 5
         A 8-9 openat b {CREATE_EXCL} = 4"
    );
    let plan = plan(&script);
    let tree = Tree::expected(&plan, &Linear::walk(&plan).world);
    let owner = |name: &[u8]| {
        let known = tree.things[tree.names[name]].attributes;
        (known.uid, known.gid)
    };
    assert_eq!((owner(b"a"), owner(b"b")), ((5, 6), (0, 6)));
}
