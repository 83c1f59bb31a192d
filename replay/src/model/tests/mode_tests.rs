//! Modes that the snapshot lacks are those that calls show later; names keep theirs as they move.

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::testing::{opened, plan};

/// Returns the mode of the first name at the start, and of the second one at the end.
fn modes(script: &str, name: [&str; 2]) -> [u32; 2] {
    let plan = plan(script);
    let linear = Linear::walk(&plan);
    assert!(linear.unexplained.is_empty());
    let trees = [
        Tree::initial(&plan, &linear.world),
        Tree::expected(&plan, &linear.world),
    ];
    [0, 1].map(|at| {
        let tree = &trees[at];
        tree.things[tree.names[name[at].as_bytes()]].attributes.mode
    })
}

const MOVED: &str = "
    tree d mode=40755
    tree d/m mode=0 ino=7
    A 0-10 rename d e = 0
";

#[test]
fn a_file_that_moved_with_its_directory_has_the_mode_of_its_open() {
    let open = format!("{MOVED} A 20-30 open e/m flags=0 ino=7 omode=100640 osize=9 = 3");
    assert_eq!(modes(&open, ["d/m", "e/m"]), [0o100_640; 2]);
}

#[test]
fn a_mode_that_was_set_before_it_was_seen_is_that_of_the_end_only() {
    let set = format!(
        "{MOVED} A 20-30 chmod e/m mode=600 ino=7 = 0
         A 40-50 open e/m flags=0 ino=7 omode=100600 osize=9 = 3"
    );
    assert_eq!(modes(&set, ["d/m", "e/m"])[1] & 0o7777, 0o600);
}

#[test]
fn what_is_below_directories_that_change_places_goes_with_them() {
    let script = "
        tree a mode=40755 ino=3
        tree b mode=40755 ino=4
        tree a/f mode=100600 ino=5
        tree b/g mode=100644 ino=6
        A 0-10 renameat2 a b flags=2 = 0
        A 20-30 stat a/g ino=6 omode=100644 osize=0 = 0
    ";
    assert_eq!(modes(script, ["a/f", "b/f"]), [0o100_600; 2]);
    assert_eq!(modes(script, ["b/g", "a/g"]), [0o100_644; 2]);
}

#[test]
fn a_directory_of_which_only_the_type_is_known_has_the_mode_of_its_open() {
    let only_type = |flags: u32| {
        let script = format!(
            "tree d mode=40755 ino=5 flags={flags}
             A 0-10 mkdir d/e mode=700 = 0
             A 20-30 open d flags=200000 ino=5 omode=40700 = 3"
        );
        modes(&script, ["d"; 2])
    };
    assert_eq!(only_type(2), [0o040_700; 2]);
    let begun_with_the_snapshot = [0o040_755, 0o040_700];
    assert_eq!(only_type(0), begun_with_the_snapshot);
}

#[test]
fn a_mode_that_no_recorded_call_set_is_expected_at_the_end() {
    let script = "
        tree f mode=104755 ino=5
        tree g mode=100600 ino=6
        A 0-10 chmod g mode=640 ino=6 = 0
        B 5-60 fsync g fd=4 ino=6 omode=100600 = 0
        A 20-30 write f fd=3 ino=5 off=0 size=9 omode=104755 osize=9 = 9
        A 40-50 close f fd=3 ino=5 omode=100755 = 0
    ";
    assert_eq!(modes(script, ["f", "f"]), [0o104_755, 0o100_755]);
    // A call that overlapped the change shows nothing.
    assert_eq!(modes(script, ["g", "g"]), [0o100_600, 0o100_640]);
}

#[test]
fn a_mode_that_a_call_left_out_had_set_is_no_surprise() {
    let script = "
        tree f mode=100600 ino=5
        A 0-10 chmod f mode=700 ino=5 = 0
        B 20-30 open f flags=0 ino=5 omode=100700 = 3
    ";
    let whole = plan(script);
    let (draft, _) = crate::only::only(&whole, &[false, true]);
    let part = opened(draft);
    let mode = |plan| {
        let tree = Tree::expected(plan, &Linear::walk(plan).world);
        tree.things[tree.names[&b"f"[..]]].attributes.mode
    };
    assert_eq!((mode(&whole), mode(&part)), (0o100_700, 0o100_600));
}

#[test]
fn mkdir_gives_no_set_id_bits() {
    let script = "
        tree t mode=40755
        A 0-10 mkdir d mode=7770 = 0
        A 20-30 chmod d mode=2770 = 0
        A 40-50 mkdir d/e mode=700 = 0
    ";
    assert_eq!(modes(script, ["t", "d/e"])[1], 0o042_700);
    let without = script.replace("2770", "1770");
    assert_eq!(modes(&without, ["t", "d/e"])[1], 0o040_700);
    let alone = "
        tree t mode=40755
        A 0-10 mkdir d mode=7770 = 0
    ";
    assert_eq!(modes(alone, ["t", "d"])[1], 0o041_750);
}
