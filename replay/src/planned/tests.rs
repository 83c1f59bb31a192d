//! A stored order holds what the walk found; anything else in a file is refused or harmless.

use super::{Edge, Rules, Stored, Walked, checks, circles};
use crate::fuzzing;
use crate::plan::Plan;
use crate::testing::plan;

/// All that an order can hold: forks, locks, a passed descriptor, a listing, attributes, a contest.
const RICH: &str = "
    tree d mode=40755 ino=2 flags=1
    tree d/a ino=7 size=100 holes=50
    tree d/x ino=8
    tree l mode=120777 target=d/a
    xattr d/a user.b 9
    A 0-10 openat d/a ino=7 flags=102 omode=100644 osize=100 = 3
    A 11-20 FORK B = 0
    B 21-30 pwrite64 fd=3 ino=7 off=100 size=5 osize=105 omode=100644 = 5
    C 31-40 pwrite64 fd=9 ino=7 off=0 size=5 osize=105 omode=100644 = 5
    A 41-50 fcntl fd=3 ino=7 cmd=6 lock=1 = 0
    A 51-60 fcntl fd=3 ino=7 cmd=6 lock=2 = 0
    B 52-70 fcntl fd=3 ino=7 cmd=7 lock=1 = 0
    D 53-90 fcntl fd=5 ino=7 cmd=7 lock=1 = 0
    B 71-72 fcntl fd=3 ino=7 cmd=7 lock=2 = 0
    C 71-80 openat d ino=2 flags=200000 omode=40755 = 4
    C 81-85 getdents64 d fd=4 ino=2 size=4096 = 48
    C 86-90 getdents64 d fd=4 ino=2 size=4096 = 0
    A 91-99 rename d e ino=2 = 0
    B 92-105 stat e/a ino=7 omode=100644 osize=105 = 0
    C 106-110 chmod e/a mode=600 ino=7 = 0
    A 111-120 setxattr e/a user.c size=4 ino=7 = 0
";

fn stored(plan: &Plan) -> (Vec<u8>, Stored<'_>) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    super::write(plan, file.reopen().expect("a file")).expect("room");
    let bytes = std::fs::read(file.path()).expect("a file");
    let stored = Stored::open(plan, file.path()).expect("its own order");
    (bytes, stored.expect("a file"))
}

#[test]
fn the_same_plan_has_the_same_order_byte_for_byte() {
    let made = (1..9).map(|at| format!("T{at} {at}0-{at}5 mkdir d1/{at} = 0"));
    let listed = (1..9).flat_map(|at| {
        let directory = format!("d{at} fd={at} ino=1{at}");
        [
            format!("tree d{at} mode=40755 ino=1{at} flags=1"),
            format!("A {at}00-{at}05 openat d{at} ino=1{at} flags=200000 omode=40755 = {at}"),
            format!("A {at}10-{at}15 getdents64 {directory} size=4096 = 0"),
        ]
    });
    let script: Vec<String> = made.chain(listed).collect();
    let plan = plan(&script.join("\n"));
    let (bytes, first) = stored(&plan);
    let rules = first.rules().expect("rules");
    assert_eq!((rules.edges.len(), rules.listings.known.len()), (8, 8));
    assert_eq!(stored(&plan).0, bytes);
}

/// Returns a value as serde encodes it: equal bytes mean equal values.
fn said(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("memory")
}

#[test]
fn what_is_read_is_what_the_walk_found() {
    let plan = plan(RICH);
    let (walked, (_, stored)) = (Walked::of(&plan, true), stored(&plan));
    let rules = stored.rules().expect("rules");
    let found = [
        rules.edges.len(),
        rules.passes.len(),
        rules.listings.known.len(),
    ];
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
    assert!(!rules.rivals.is_empty());
    assert_eq!(said(&rules), said(walked.rules()));
    assert_eq!(said(&stored.start().expect("tree")), said(&walked.start()));
    assert_eq!(said(&stored.end().expect("tree")), said(&walked.end()));
    let (why, other) = (stored.why().expect("reasons"), walked.why());
    assert_eq!((&why.reasons, &why.names), (&other.reasons, &other.names));
    assert!(!why.reasons.is_empty() && !why.names.is_empty());
}

#[test]
fn the_order_of_another_plan_is_refused() {
    let plan = plan(RICH);
    let other = crate::testing::plan("A 0-10 stat a = -2");
    let file = tempfile::NamedTempFile::new().expect("a file");
    super::write(&plan, file.reopen().expect("a file")).expect("room");
    let error = Stored::open(&other, file.path()).expect_err("another plan");
    let text = format!("{error:#}");
    assert!(
        text.contains("remove it") && text.contains("another plan"),
        "{text}"
    );
}

#[test]
fn no_file_is_no_error_and_an_unfinished_one_is_refused() {
    let plan = plan("A 0-10 stat a = -2");
    let file = tempfile::NamedTempFile::new().expect("a file");
    let missing = file.path().with_extension("missing");
    assert!(Stored::open(&plan, &missing).expect("none").is_none());
    let (bytes, _) = stored(&plan);
    for length in 0..bytes.len() {
        std::fs::write(file.path(), &bytes[..length]).expect("room");
        assert!(Stored::open(&plan, file.path()).is_err(), "{length}");
    }
}

fn refusal(change: impl Fn(&mut Rules)) -> String {
    let plan = plan(RICH);
    let mut rules = stored(&plan).1.rules().expect("rules");
    change(&mut rules);
    let error = checks::rules(&plan, &rules).expect_err("must be refused");
    format!("{error:#}")
}

#[test]
fn rules_that_name_what_is_not_there_are_refused() {
    let edge = |edge: Edge| refusal(move |rules| rules.edges.push(edge));
    assert!(edge((99, 0, 1)).contains("unknown operation"));
    assert!(edge((0, 99, 1)).contains("unknown thread"));
    assert!(edge((0, 0, 1)).contains("its thread"));
    assert!(edge((0, 1, 0)).contains("not there"));
    assert!(edge((0, 1, 99)).contains("not there"));
    assert!(refusal(|rules| rules.rivals.push((0, 1, 99))).contains("not there"));
    assert!(refusal(|rules| rules.passes[0].fd = 65_536).contains("passed"));
    assert!(refusal(|rules| rules.passes[0].used = 99).contains("passed"));
    assert!(refusal(|rules| rules.passes.push(rules.passes[0])).contains("not sorted"));
    assert!(refusal(|rules| rules.unexplained.push(99)).contains("unknown operation"));
    assert!(refusal(|rules| rules.listings.calls.to_mut()[0].1 = 9).contains("listing"));
}

#[test]
fn operations_that_wait_in_a_circle_are_refused() {
    let plan = plan(
        "
        A 0-10 stat a = -2
        A 20-30 FORK B = 0
        B 40-50 stat b = -2
        C 60-70 stat c = -2
        A 80-90 stat d = -2
    ",
    );
    let refused = |edges: &[Edge]| !circles::closing(&plan, edges).is_empty();
    // Operations 0, 1, 4 are of thread 0 (A), 2 of 1 (B), 3 of 2 (C).
    assert!(!refused(&[]));
    assert!(!refused(&[(2, 2, 1), (4, 1, 1), (4, 2, 1)]));
    assert!(refused(&[(2, 2, 1), (3, 1, 1)]), "two wait for each other");
    assert!(refused(&[(1, 1, 1)]), "a fork waits for its child");
    assert!(refused(&[(0, 2, 1), (3, 0, 3)]), "by way of a thread");
    assert!(
        refused(&[(0, 2, 1), (2, 2, 1), (3, 1, 1)]),
        "by way of a fork"
    );
    let both = circles::closing(&plan, &[(2, 2, 1), (3, 1, 1), (4, 2, 1)]);
    assert_eq!(both.len(), 1, "one of a circle is enough");
}

#[test]
fn whatever_is_changed_in_an_order_is_refused_or_harmless() {
    let plan = plan(RICH);
    let (whole, _) = stored(&plan);
    for at in 0..whole.len() {
        for change in [0x01, 0x80, 0xff] {
            let mut changes = vec![0; at + 1];
            changes[at] = change;
            fuzzing::order(plan.bytes(), &changes);
        }
    }
}
