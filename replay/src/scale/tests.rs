use foldhash::{HashSet, HashSetExt};
use spoolscope_traces::records::{NONE, PlanOp};
use std::collections::BTreeSet;

use super::scale;
use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::plan::Plan;
use crate::semantics::{self, Kind};
use crate::testing::{opened, plan};

/// Returns the plan of a script with copies of its users.
fn scaled(script: &str, users: &[&str], phases_ns: &[i64]) -> Plan {
    let users = users.iter().map(|user| user.as_bytes().to_vec());
    let (draft, _) = scale(&plan(script), &users.collect(), phases_ns).expect("room");
    opened(draft)
}

/// Returns names before the first operation, and after the last; all results must be explained.
fn names(plan: &Plan) -> [BTreeSet<String>; 2] {
    let linear = Linear::walk(plan);
    assert!(linear.unexplained.is_empty());
    let trees = [
        Tree::initial(plan, &linear.world),
        Tree::expected(plan, &linear.world),
    ];
    let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    trees.map(|tree| tree.names.keys().map(text).collect())
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

fn of_copy(plan: &Plan, copy: u32, copies: u32) -> Vec<PlanOp> {
    let each = plan.threads().len() as u32 / copies;
    let ops = plan.ops().iter().filter(|op| op.thread / each == copy);
    ops.copied().collect()
}

const DELIVERY: &str = "
    tree mail mode=40755 ino=2
    tree mail/a mode=40755 ino=3
    tree mail/a/new mode=40755 ino=4
    tree queue mode=40755 ino=5
    tree queue/1 ino=6 size=7
    A 0-10 open queue/1 ino=6 omode=100644 osize=7 = 5
    A 20-30 FORK B = 0
    B 40-50 open mail/a/new/x flags=301 mode=644 ino=9 omode=100644 osize=0 = 6
    B 60-70 write mail/a/new/x fd=6 ino=9 off=0 size=3 omode=100644 osize=3 = 3
    A 80-90 unlink queue/1 ino=6 = 0
    A 95-99 stat mail ino=2 omode=40755 = 0
";

#[test]
fn mailboxes_and_files_are_there_again_and_directories_of_all_only_once() {
    let plan = scaled(DELIVERY, &["mail/a"], &[5, 1000]);
    let [before, after] = names(&plan);
    let common = ["mail", "queue", "mail/a", "mail/a.1", "mail/a.2"];
    let common: Vec<&str> = [&common[..], &["mail/a/new", "mail/a.1/new", "mail/a.2/new"]].concat();
    let queued = ["queue/1", "queue/1.1", "queue/1.2"];
    let mail = ["mail/a/new/x", "mail/a.1/new/x", "mail/a.2/new/x"];
    assert_eq!(before, set(&[&common[..], &queued].concat()));
    assert_eq!(after, set(&[&common[..], &mail].concat()));
}

#[test]
fn a_copy_has_its_own_processes_inodes_and_times() {
    let plan = scaled(DELIVERY, &["mail/a"], &[5, 1000]);
    let [first, second, third] = [0, 1, 2].map(|copy| of_copy(&plan, copy, 3));
    for (late, copy) in [(5, &second), (1000, &third)] {
        assert_eq!(copy.len(), first.len());
        for (op, was) in copy.iter().zip(&first) {
            assert_eq!(
                (op.start_ns, op.end_ns),
                (was.start_ns + late, was.end_ns + late)
            );
            assert_eq!(
                (op.op, op.ret, op.fd, op.call),
                (was.op, was.ret, was.fd, was.call)
            );
        }
    }
    let inos = |ops: &[PlanOp]| ops.iter().map(|op| op.ino).collect::<HashSet<u64>>();
    // Common directories keep their inode numbers.
    assert_eq!(&inos(&first) & &inos(&third), HashSet::from_iter([0, 2]));
    let ids: HashSet<u32> = plan.threads().iter().map(|thread| thread.tid).collect();
    assert_eq!(ids.len(), 6);
    assert_eq!(plan.duration_ns(), 1000);
}

#[test]
fn what_was_so_at_the_start_is_so_at_once() {
    let script = "
        tree a ino=7
        A 0-0 open a flags=2 ino=7 omode=100644 osize=0 call=-1 = 5
        A 0-10 stat a ino=7 omode=100644 osize=0 = 0
    ";
    let plan = scaled(script, &[], &[100]);
    let starts: Vec<i64> = of_copy(&plan, 1, 2).iter().map(|op| op.start_ns).collect();
    assert_eq!(starts, [0, 100]);
}

#[test]
fn directories_that_a_call_changes_are_copied() {
    for call in [
        "chmod queue ino=5 = 0",
        "rename queue q ino=5 = 0",
        "flock queue fd=3 cmd=2 ino=5 = 0",
        "rmdir queue ino=5 = 0",
    ] {
        let script = format!("tree queue mode=40755 ino=5\nA 0-10 {call}");
        let [before, _] = names(&scaled(&script, &[], &[5]));
        assert_eq!(before, set(&["queue", "queue.1"]), "{call}");
    }
    let made_by_mkfs = "tree lost+found mode=40700 ino=5\nA 0-10 stat lost+found ino=5 = 0";
    let plan = scaled(made_by_mkfs, &[], &[5]);
    assert_eq!(plan.string(of_copy(&plan, 1, 2)[0].path), b"lost+found");
    let looked_at = "tree queue mode=40755 ino=5\nA 0-10 stat queue ino=5 = 0";
    assert_eq!(names(&scaled(looked_at, &[], &[5]))[0], set(&["queue"]));
    let made = "A 0-10 mkdir queue ino=5 = 0\nA 20-30 stat queue ino=5 = 0";
    let [_, after] = names(&scaled(made, &[], &[5]));
    assert_eq!(after, set(&["queue", "queue.1"]));
}

#[test]
fn a_listing_of_what_is_common_reads_on_where_it_ended() {
    let script = "
        tree queue mode=40755 ino=5
        tree mail mode=40755 ino=6
        A 0-10 open queue ino=5 omode=40755 = 3
        A 20-30 getdents64 queue fd=3 ino=5 omode=40755 size=100 = 48
        A 40-50 getdents64 queue fd=3 ino=5 omode=40755 size=100 = 0
        A 60-70 open mail ino=6 omode=40755 = 4
        A 80-90 getdents64 mail fd=4 ino=6 omode=40755 size=100 = 0
    ";
    let plan = scaled(script, &["mail"], &[500]);
    for copy in [0, 1] {
        let ops = of_copy(&plan, copy, 2);
        let listed = ops
            .iter()
            .filter(|op| semantics::kind(op) == Kind::Getdents);
        let reads_on: Vec<bool> = listed.map(|op| op.arg == semantics::READS_ON).collect();
        assert_eq!(reads_on, [false, true, false]);
    }
}

#[test]
fn no_name_of_a_copy_is_a_recorded_one() {
    let script = "tree a ino=1\ntree a.1 ino=2\ntree b.7 ino=3\nA 0-10 stat a ino=1 = 0";
    let [before, _] = names(&scaled(script, &[], &[5]));
    let copies = ["a~.1", "a.1~.1", "b.7~.1"];
    assert_eq!(before, set(&[&["a", "a.1", "b.7"][..], &copies].concat()));
    let apart = script.replace("a.1", "c.1");
    assert!(names(&scaled(&apart, &[], &[5]))[0].contains("c.1.1"));
}

#[test]
fn a_name_without_room_is_copied_with_its_directory_or_not_at_all() {
    let long = "x".repeat(254);
    let script = format!("tree d mode=40755 ino=1\ntree d/{long} ino=2\nA 0-10 stat d ino=1 = 0");
    let [before, _] = names(&scaled(&script, &[], &[5]));
    assert!(before.contains(&format!("d.1/{long}")));
    let above = plan(
        &script
            .replace("d/", "")
            .replace("tree d mode=40755 ino=1\n", ""),
    );
    let refused = scale(&above, &HashSet::new(), &[5]).expect_err("must be refused");
    assert!(refused.to_string().contains("too long"));
}

#[test]
fn a_symlink_of_a_copy_leads_to_the_copy() {
    let script = "
        tree mail mode=40755 ino=1
        tree mail/a mode=40755 ino=2
        tree mail/b mode=40755 ino=3
        tree mail/a/to mode=120777 ino=4 target=../b/./inbox
        tree mail/a/out mode=120777 ino=5 target=/mail/b
        tree mail/a/far mode=120777 ino=6 target=../../../b
        A 0-10 readlink mail/a/to ino=4 omode=120777 size=100 = 12
        A 20-30 readlink mail/a/out ino=5 omode=120777 size=100 = 7
    ";
    let plan = scaled(script, &["mail/a", "mail/b"], &[500]);
    let target = |name: &str| {
        let named = |path: u32| plan.string(path) == name.as_bytes();
        let entry = plan.entries().iter().find(|entry| named(entry.path));
        String::from_utf8_lossy(plan.string(entry.expect(name).target)).into_owned()
    };
    assert_eq!(target("mail/a/to"), "../b/./inbox");
    assert_eq!(target("mail/a.1/to"), "../b.1/./inbox");
    assert_eq!(target("mail/a.1/out"), "/mail/b");
    assert_eq!(target("mail/a.1/far"), "../../../b");
    let read: Vec<i64> = of_copy(&plan, 1, 2).iter().map(|op| op.ret).collect();
    assert_eq!(read, [14, 7]);
}

#[test]
fn locks_of_copies_do_not_meet() {
    let script = "
        tree box ino=7
        A 0-10 open box flags=2 ino=7 omode=100644 osize=0 = 5
        A 20-30 fcntl box fd=5 ino=7 cmd=6 lock=1 off=0 size=0 = 0
        A 900-910 fcntl box fd=5 ino=7 cmd=6 lock=2 off=0 size=0 = 0
    ";
    // While the first copy has its lock, the second one gets its own.
    names(&scaled(script, &[], &[100]));
}

#[test]
fn impossible_times_and_sizes_are_refused() {
    let whole = plan("A 0-10 stat x = -2");
    for phase in [-1, i64::MAX] {
        assert!(scale(&whole, &HashSet::new(), &[phase]).is_err());
    }
    let refused = super::check(&whole, NONE as usize, &[]).expect_err("must be refused");
    assert!(refused.to_string().contains("--scale-users"));
}

#[test]
fn files_that_no_disk_holds_do_not_take_negative_room() {
    let script = format!("tree u/a ino=3 size={}\nA 0-1 stat u/a = 0", i64::MAX / 2);
    let users = HashSet::from_iter([b"u".to_vec()]);
    let (_, facts) = scale(&plan(&script), &users, &[10, 20]).expect("room");
    assert_eq!(facts["bytes"], i64::MAX);
}
