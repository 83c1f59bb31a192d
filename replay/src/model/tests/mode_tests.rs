//! Modes that the snapshot lacks are those that calls show later; names keep theirs as they move.

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::testing::plan;

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
    assert_eq!(only_type(0), [0o040_755; 2], "the snapshot is believed");
}
