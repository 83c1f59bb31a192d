//! Extended attributes that calls imply at the start and at the end.

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::model::tests::order_tests::{edges, order};
use crate::testing::plan;

/// Returns attributes of the tree before, and after: file, name, length.
fn both(script: &str) -> [Vec<(String, String, u32)>; 2] {
    let plan = plan(script);
    let linear = Linear::walk(&plan);
    assert!(linear.unexplained.is_empty());
    let listed = |tree: &Tree| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let names = tree.names.iter();
        let all = names.flat_map(|(name, thing)| {
            let xattrs = tree.things[*thing].xattrs.iter();
            xattrs.filter_map(|(xattr, known)| Some((text(name), text(xattr), known.length?)))
        });
        all.collect()
    };
    [
        listed(&Tree::initial(&plan, &linear.world)),
        listed(&Tree::expected(&plan, &linear.world)),
    ]
}

fn known(all: &[(&str, &str, u32)]) -> Vec<(String, String, u32)> {
    let own =
        |(file, name, length): &(&str, &str, u32)| (file.to_string(), name.to_string(), *length);
    all.iter().map(own).collect()
}

#[test]
fn what_the_snapshot_shows_is_there_and_calls_change_it() {
    let [first, last] = both(
        "tree a ino=1
         tree b ino=2
         xattr a user.x 9
         xattr a security.selinux 30
         xattr b user.y 4
         A 0-10 setxattr a user.x size=5 = 0
         A 20-30 setxattr a user.new size=7 = 0
         A 40-50 removexattr b user.y = 0",
    );
    let label = ("a", "security.selinux", 30);
    assert_eq!(
        first,
        known(&[label, ("a", "user.x", 9), ("b", "user.y", 4)])
    );
    assert_eq!(
        last,
        known(&[label, ("a", "user.new", 7), ("a", "user.x", 5)])
    );
}

#[test]
fn the_first_call_corrects_a_snapshot_taken_under_way() {
    let [first, last] = both(
        "tree a ino=1
         xattr a user.made 5
         xattr a user.missed 5
         xattr a user.longer 5
         A 0-10 setxattr a user.made size=5 flags=1 = 0
         A 20-30 getxattr a user.missed size=100 = -61
         A 40-50 setxattr a user.missed size=5 = 0
         A 60-70 getxattr a user.longer size=2 = 8
         A 80-90 setxattr a user.longer size=5 flags=2 = 0",
    );
    assert_eq!(first, known(&[("a", "user.longer", 8)]));
    let all = [
        ("a", "user.longer", 5),
        ("a", "user.made", 5),
        ("a", "user.missed", 5),
    ];
    assert_eq!(last, known(&all));
}

#[test]
fn calls_alone_prove_what_was_there() {
    let [first, last] = both(
        "A 0-10 getxattr a user.read size=0 = 12
         A 20-30 getxattr b user.long size=10 = -34
         A 40-50 setxattr c user.kept size=3 flags=1 = -17
         A 60-70 removexattr d user.gone = 0
         A 80-90 setxattr e user.none size=3 flags=2 = -61",
    );
    let kept = [
        ("a", "user.read", 12),
        ("b", "user.long", 11),
        ("c", "user.kept", 0),
    ];
    assert_eq!(
        first,
        known(&[kept.as_slice(), &[("d", "user.gone", 0)]].concat())
    );
    assert_eq!(last, known(&kept));
}

#[test]
fn they_stay_with_the_object_through_names_and_go_with_it() {
    let [first, last] = both(
        "tree new mode=40755
         tree cur mode=40755
         tree new/m ino=7
         tree twin ino=7
         tree old ino=9
         xattr twin user.x 9
         xattr new/m user.x 9
         xattr old user.z 1
         A 0-10 rename new/m cur/m ino=7 = 0
         A 20-30 fsetxattr fd=3 ino=7 size=2 = 0
         A 40-50 openat tmp flags=301 ino=8 omode=100644 = 4
         A 60-70 setxattr tmp user.y size=6 = 0
         A 80-90 rename tmp old ino=8 = 0
         A 95-99 rename old cur/n ino=8 = 0",
    );
    let start = [
        ("new/m", "user.x", 9),
        ("old", "user.z", 1),
        ("twin", "user.x", 9),
    ];
    assert_eq!(first, known(&start));
    let end = [
        ("cur/m", "user.x", 9),
        ("cur/n", "user.y", 6),
        ("twin", "user.x", 9),
    ];
    assert_eq!(last, known(&end));
}

#[test]
fn the_last_of_several_sets_and_what_it_gives_come_in_order() {
    let script = "
        tree a ino=1
        A 0-10 setxattr a user.x size=5 = 0
        B 20-30 getxattr a user.x size=100 = 5
        B 40-90 setxattr a user.x size=6 = 0
        A 50-80 setxattr a user.x size=7 = 0
        A 100-110 getxattr a user.y size=9 = -61
    ";
    assert_eq!(edges(script), [(1, 0), (2, 3), (3, 1)]);
    assert_eq!(both(script)[1], known(&[("a", "user.x", 6)]));
}

#[test]
fn one_that_is_missed_was_removed_before() {
    let script = "
        tree a ino=1
        A 0-10 setxattr a user.x size=5 = 0
        B 20-90 removexattr a user.x = 0
        A 30-40 getxattr a user.x size=9 = -61
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(1, 0), (2, 1)]);
}

#[test]
fn one_that_is_found_is_removed_later() {
    let script = "
        tree a ino=1
        A 0-10 setxattr a user.x size=5 = 0
        A 20-90 getxattr a user.x size=9 = 5
        B 30-40 removexattr a user.x = 0
    ";
    assert_eq!(order(script), (vec![0, 1, 2], 0));
    assert_eq!(edges(script), [(2, 1)]);
}

#[test]
fn of_two_that_remove_it_one_finds_what_was_set_in_between() {
    let script = "
        tree a ino=1
        A 0-10 setxattr a user.x size=5 = 0
        B 20-200 removexattr a user.x = 0
        A 30-40 removexattr a user.x = 0
        A 50-150 setxattr a user.x size=6 flags=1 = 0
        A 210-220 getxattr a user.x size=9 = -61
    ";
    assert_eq!(order(script), (vec![0, 2, 3, 1, 4], 0));
}

#[test]
fn one_without_room_comes_between_those_that_took_and_gave_it() {
    let script = "
        tree a ino=1
        A 0-10 setxattr a user.x size=3000 = 0
        B 20-30 setxattr a user.y size=2000 = -28
        A 40-50 removexattr a user.x = 0
        B 60-70 setxattr a user.z size=3000 = 0
    ";
    assert_eq!(edges(script), [(1, 0), (2, 1), (3, 2)]);
}
