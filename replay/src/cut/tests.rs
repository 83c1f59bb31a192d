use spoolscope_traces::records::{PLAN_FORK, PlanOp};

use super::cut;
use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::plan::Plan;
use crate::semantics::{self, id_of};
use crate::testing::{opened, plan};

/// Returns the plan between two moments of a script.
fn part(script: &str, from_ns: i64, to_ns: i64) -> Plan {
    let (draft, facts) = cut(&plan(script), from_ns, to_ns);
    assert_eq!(facts["skipped"], 0);
    opened(draft)
}

fn names(plan: &Plan) -> Vec<String> {
    let linear = Linear::walk(plan);
    assert!(linear.unexplained.is_empty());
    let tree = Tree::initial(plan, &linear.world);
    let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
    tree.names.keys().map(text).collect()
}

fn recorded(plan: &Plan) -> Vec<PlanOp> {
    let ops = plan.ops().iter().filter(|op| op.call != u64::MAX);
    ops.copied().collect()
}

/// Returns the operations that restore the state at the start, by name.
fn prelude(plan: &Plan) -> Vec<String> {
    let ops = plan.ops().iter().filter(|op| op.call == u64::MAX);
    ops.map(semantics::name).collect()
}

const DELIVERY: &str = "
    tree new mode=40755
    tree tmp mode=40755
    A 0-10 open tmp/1 flags=301 mode=600 ino=7 omode=100600 osize=0 = 5
    A 20-30 write tmp/1 fd=5 ino=7 off=0 size=9 omode=100600 osize=9 = 9
    B 40-90 stat new/1 = -2
    A 50-60 rename tmp/1 new/1 ino=7 = 0
    A 70-80 write new/1 fd=5 ino=7 off=9 size=3 omode=100600 osize=12 = 3
    B 100-110 stat new/1 ino=7 omode=100600 osize=12 = 0
";

#[test]
fn a_listing_is_repeated_once_for_all_descriptors_of_its_stream() {
    let script = "
        tree d mode=40755 ino=4
        tree d/e mode=100600 ino=5
        A 0-1 openat d flags=200000 ino=4 omode=40755 = 3
        A 2-3 getdents64 d base=0 fd=3 ino=4 omode=40755 size=32768 = 24
        A 4-5 FORK B = 0
        A 100-110 getdents64 d base=0 fd=3 ino=4 omode=40755 size=32768 = 48
        B 120-130 stat d/e ino=5 omode=100600 = 0
    ";
    let part = part(script, 50, i64::MAX);
    assert_eq!(part.fds().len(), 2);
    let repeated = prelude(&part);
    let listings = repeated.iter().filter(|name| *name == "getdents64");
    assert_eq!(listings.count(), 1);
}

#[test]
fn what_happened_before_is_in_the_tree_and_in_descriptors() {
    let part = part(DELIVERY, 35, i64::MAX);
    assert_eq!(names(&part), ["new", "tmp", "tmp/1"]);
    let entry = part
        .entries()
        .iter()
        .find(|entry| entry.ino == 7)
        .expect("the file");
    assert_eq!((entry.size, entry.mode), (9, 0o100_600));
    let [fd] = part.fds() else {
        panic!("one descriptor: {:?}", part.fds());
    };
    assert_eq!((fd.fd, fd.pos, part.string(fd.path)), (5, 9, &b"tmp/1"[..]));
    assert_eq!(fd.flags as i32 & (libc::O_CREAT | libc::O_EXCL), 0);
    assert_eq!(recorded(&part)[0].start_ns, 5);
}

#[test]
fn a_copy_moves_the_positions_that_it_uses() {
    let copies = |copy: &str| {
        let script = format!(
            "tree a ino=7 mode=100600 size=99
             tree b ino=8 mode=100600 size=99
             A 0-1 open a flags=0 ino=7 omode=100600 osize=99 = 3
             A 2-3 open b flags=2 ino=8 omode=100600 osize=99 = 4
             A 10-20 {copy} = 9"
        );
        let part = part(&script, 30, i64::MAX);
        part.fds().iter().map(|fd| fd.pos).collect::<Vec<_>>()
    };
    assert_eq!(copies("copy_file_range a fd=3 fd2=4 size=9 arg=-1"), [9, 9]);
    assert_eq!(
        copies("copy_file_range a fd=3 fd2=4 size=9 off=50 arg=-1"),
        [0, 9]
    );
    assert_eq!(copies("copy_file_range a fd=3 fd2=4 size=9 arg=50"), [9, 0]);
    assert_eq!(copies("sendfile a fd=3 fd2=4 size=9"), [9, 9]);
    assert_eq!(copies("sendfile a fd=3 fd2=4 size=9 off=50"), [0, 9]);
}

#[test]
fn a_call_in_flight_belongs_where_it_took_effect() {
    // B looked before the rename, and its call returns after it.
    let script = DELIVERY.replace("B 40-90", "B 40-65");
    let before = part(&script, 0, 62);
    let after = part(&script, 62, i64::MAX);
    let of_b = |plan: &Plan| recorded(plan).iter().filter(|op| op.ret == -2).count();
    assert_eq!((of_b(&before), of_b(&after)), (1, 0));
}

#[test]
fn parts_hold_every_call_once() {
    let all = recorded(&plan(DELIVERY)).len();
    for ns in 0..115 {
        let parts = [part(DELIVERY, 0, ns), part(DELIVERY, ns, i64::MAX)];
        let calls: usize = parts.iter().map(|part| recorded(part).len()).sum();
        assert_eq!(calls, all, "cut at {ns}");
        let [first, second] = &parts;
        let linear = Linear::walk(first);
        let end: Vec<Vec<u8>> = Tree::expected(first, &linear.world)
            .names
            .into_keys()
            .collect();
        let begin: Vec<Vec<u8>> = names(second).into_iter().map(String::into_bytes).collect();
        assert_eq!(end, begin, "cut at {ns}");
    }
}

#[test]
fn locks_are_held_again_and_given_up_as_recorded() {
    let script = "
        tree a ino=7
        A 0-10 open a flags=2 ino=7 omode=100644 osize=0 = 5
        A 20-30 fcntl a fd=5 ino=7 cmd=6 lock=1 off=0 size=0 = 0
        B 40-50 open a flags=2 ino=7 omode=100644 osize=0 = 6
        B 60-200 fcntl a fd=6 ino=7 cmd=7 lock=1 off=0 size=0 = 0
        A 100-110 fcntl a fd=5 ino=7 cmd=6 lock=2 off=0 size=0 = 0
    ";
    let held = part(script, 80, i64::MAX);
    assert_eq!(prelude(&held), ["fcntl"]);
    assert_eq!(
        (held.ops()[0].cmd, held.ops()[0].lock_type),
        (libc::F_SETLK, 1)
    );
    assert_eq!(recorded(&held).len(), 2);
    assert_eq!(prelude(&part(script, 300, i64::MAX)), ["fcntl"]);
    let closed = script.to_string() + "B 300-310 close fd=6 ino=7 = 0";
    assert_eq!(prelude(&part(&closed, 400, i64::MAX)), [""; 0]);
}

#[test]
fn each_kind_of_lock_is_taken_by_the_call_that_belongs_to_it() {
    let script = "
        tree a ino=7 size=90
        A 0-10 open a flags=2 ino=7 omode=100644 osize=90 = 5
        A 20-30 read a fd=5 ino=7 omode=100644 osize=90 off=0 size=20 = 20
        A 40-50 flock a fd=5 ino=7 cmd=1 = 0
        A 60-70 fcntl a fd=5 ino=7 cmd=37 lock=0 off=3 size=4 = 0
        A 80-90 fcntl a fd=5 ino=7 cmd=6 lock=1 whence=1 off=5 size=10 = 0
        A 100-110 fcntl a fd=5 ino=7 cmd=6 lock=1 whence=2 off=0 size=0 = 0
        A 120-130 stat x = -2
    ";
    let part = part(script, 115, i64::MAX);
    let ops = part.ops().iter().filter(|op| op.call == u64::MAX);
    let taken: Vec<_> = ops
        .map(|op| (op.cmd, op.lock_type, op.lock_whence, op.offset, op.size))
        .collect();
    let (posix, of_file) = (libc::F_SETLK, libc::F_OFD_SETLK);
    let expected = [
        (posix, 1, 0, 25, 10),
        (posix, 1, 0, 90, 0),
        (of_file, 0, 0, 3, 4),
        (libc::LOCK_SH | libc::LOCK_NB, 0, 0, -1, -1),
    ];
    assert_eq!(taken, expected);
}

#[test]
fn an_open_file_without_a_name_gets_one_until_it_is_open() {
    let script = "
        tree a ino=7 size=4
        A 0-10 open a ino=7 omode=100644 osize=4 = 5
        B 20-30 unlink a ino=7 = 0
        A 40-50 read fd=5 ino=7 off=0 size=9 omode=100644 osize=4 = 4
    ";
    let part = part(script, 35, i64::MAX);
    assert_eq!(prelude(&part), ["unlink"]);
    assert_eq!(names(&part), [".spoolscope-deleted.0"]);
    assert_eq!(part.string(part.fds()[0].path), b".spoolscope-deleted.0");
}

#[test]
fn threads_that_live_are_started_and_the_dead_are_not() {
    let script = "
        A 0-10 FORK B = 0
        A 20-30 THREAD C = 0
        B 40-50 EXIT = 0
        C 60-70 stat x = -2
        A 80-90 FORK D = 0
        D 95-97 stat x = -2
    ";
    let part = part(script, 55, i64::MAX);
    let forks = part.ops().iter().filter(|op| op.op == PLAN_FORK);
    let forks: Vec<(u32, i64)> = forks.map(|op| (op.thread, op.arg)).collect();
    // A starts its thread C at once, and D at the recorded time.
    assert_eq!(part.threads().len(), 3);
    assert_eq!(forks, [(0, 1), (0, 2)]);
    assert_eq!(part.ops()[0].call, u64::MAX);
}

#[test]
fn a_partly_unmapped_file_is_mapped_again_without_that_part() {
    let script = "
        tree a ino=7 size=12288
        A 0-10 open a ino=7 omode=100644 osize=12288 = 5
        A 20-30 mmap fd=5 ino=7 off=0 size=12288 mode=1 flags=1 omode=100644 = 65536
        A 40-50 munmap size=100 arg=69632 = 0
        A 60-70 stat x = -2
    ";
    let part = part(script, 55, i64::MAX);
    let maps = part.ops().iter().filter(|op| op.op == id_of("mmap"));
    let maps: Vec<(i64, i64, i64)> = maps.map(|op| (op.ret, op.size, op.offset)).collect();
    assert_eq!(maps, [(65536, 4096, 0), (73728, 4096, 8192)]);
}

#[test]
fn a_file_that_was_passed_before_the_cut_is_open_in_both_processes() {
    let part = part(
        "A 0-10 openat f ino=7 omode=100644 osize=0 flags=101 = 3
         B 20-30 write fd=5 ino=7 omode=100644 osize=10 off=0 size=10 = 10
         B 40-50 write fd=5 ino=7 omode=100644 osize=20 off=10 size=10 = 10",
        35,
        i64::MAX,
    );
    let [first, second] = part.fds() else {
        panic!("two descriptors: {:?}", part.fds());
    };
    assert_eq!((first.fd, second.fd), (3, 5));
    assert_eq!((first.file, first.pos), (second.file, 10));
    assert_ne!(first.thread, second.thread);
}
