//! Files with holes: what the snapshot and calls show of them, and the room they need.

use crate::cut;
use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::model::tests::order_tests::edges;
use crate::testing::plan;

const TB: i64 = 1 << 40;

type Ranges = Vec<(i64, i64)>;

/// Returns the data of the file `a` at the start and at the end of a script.
fn data(script: &str) -> (Ranges, Ranges) {
    let plan = plan(script);
    let linear = Linear::walk(&plan);
    let of = |tree: &Tree| {
        let thing = &tree.things[tree.names[b"a".as_slice()]];
        thing.written.ranges().to_vec()
    };
    (
        of(&Tree::initial(&plan, &linear.world)),
        of(&Tree::expected(&plan, &linear.world)),
    )
}

fn most_bytes(script: &str) -> i64 {
    let plan = plan(script);
    let world = Linear::walk(&plan).world;
    Tree::initial(&plan, &world).bytes() + world.space().peak_bytes()
}

fn hollow(data: i64) -> String {
    format!("tree a ino=7 size={TB} holes={}", TB - data)
}

#[test]
fn a_file_that_nobody_looked_into_has_its_data_at_the_beginning() {
    let entry = hollow(8192);
    assert_eq!(data(&entry), (vec![(0, 8192)], vec![(0, 8192)]));
    let seen = format!("{entry}\n A 0-1 stat a ino=7 omode=100644 osize={TB} = 0");
    assert_eq!(data(&seen), (vec![(0, 8192)], vec![(0, 8192)]));
}

#[test]
fn calls_tell_where_data_is_until_one_changes_it() {
    let entry = hollow(8192);
    let seek = "ino=7 omode=100644";
    let looked = format!(
        "{entry}
         A 0-1 openat a ino=7 omode=100644 osize={TB} = 3
         A 2-3 lseek fd=3 cmd=3 off=0 {seek} = 4096
         A 4-5 lseek fd=3 cmd=4 off=4096 {seek} = 8192
         A 6-7 lseek fd=3 cmd=3 off=8192 {seek} = 1048576
         A 8-9 lseek fd=3 cmd=3 off=1052672 {seek} = -6"
    );
    let found = vec![(4096, 8192), (1_048_576, 1_052_672)];
    assert_eq!(data(&looked), (found.clone(), found.clone()));
    let changed = format!(
        "{looked}
         A 10-11 pwrite64 fd=3 off=65536 size=4096 {seek} osize={TB} = 4096
         A 12-13 lseek fd=3 cmd=4 off=65536 {seek} = 131072"
    );
    let (start, mut end) = (found.clone(), found);
    end.insert(1, (65_536, 69_632));
    assert_eq!(data(&changed), (start, end));
}

#[test]
fn room_alone_does_not_move_data() {
    let file = "ino=7 omode=100644 osize=8192";
    let script = format!(
        "tree a ino=7 size=8192
         A 0-1 openat a {file} = 3
         A 2-3 fallocate fd=3 off=0 size=100 {file} = 0
         A 4-5 lseek fd=3 cmd=3 off=0 {file} = -6"
    );
    assert_eq!(data(&script).0, []);
    let punched = script.replace("fallocate", "fallocate flags=3");
    assert_eq!(data(&punched).0, [(0, 8192)]);
}

#[test]
fn holes_need_no_room() {
    let entry = hollow(8192);
    let seek = "ino=7 omode=100644";
    let open = format!("{entry}\n A 0-1 openat a ino=7 omode=100644 osize={TB} = 3");
    assert_eq!(most_bytes(&open), 8192);
    let cut = format!("{open}\n A 2-3 ftruncate fd=3 off=0 {seek} osize=0 = 0");
    let grown = format!("{cut}\n A 4-5 ftruncate fd=3 off={TB} {seek} osize={TB} = 0");
    assert_eq!(most_bytes(&grown), 8192);
    let at = TB - 4096;
    let written = format!("{grown}\n A 6-7 pwrite64 fd=3 off={at} size=4096 {seek} = 4096");
    assert_eq!(most_bytes(&written), 12_288);
}

#[test]
fn a_part_begins_with_as_much_data() {
    let seek = "ino=7 omode=100644";
    let script = format!(
        "{}
         A 0-1 openat a ino=7 omode=100644 osize={TB} = 3
         A 2-3 pwrite64 fd=3 off=65536 size=4096 {seek} osize={TB} = 4096
         A 4-5 unlink a ino=7 = 0
         A 6-7 fstat fd=3 {seek} osize={TB} = 0",
        hollow(8192)
    );
    let plan = plan(&script);
    for from_ns in [3, 5] {
        let (draft, facts) = cut::cut(&plan, from_ns, 9);
        assert_eq!(facts["bytes"], 12_288);
        assert_eq!(draft.entries[0].holes, TB - 12_288);
    }
}

#[test]
fn a_seek_to_data_waits_for_what_changed_the_file() {
    let file = "ino=7 omode=100644";
    let script = format!(
        "tree a ino=7 size=8192
         A 0-1 openat a {file} osize=8192 = 3
         B 10-20 truncate a off=0 = 0
         A 30-40 lseek fd=3 cmd=3 off=0 {file} osize=0 = -6
         B 50-60 truncate a off=10 = 0
         A 70-80 fstat fd=3 {file} osize=10 = 0"
    );
    assert_eq!(edges(&script), [(2, 1), (3, 2), (4, 3)]);
}

#[test]
fn more_holes_than_bytes_are_refused() {
    for holes in [-1, 11] {
        let refused = crate::testing::try_plan(&format!("tree a size=10 holes={holes}"));
        assert!(refused.is_err());
    }
}

#[test]
fn room_that_is_given_back_is_there_again() {
    let file = "ino=7 omode=100644";
    let mut script = format!(
        "A 0-1 open f flags=102 mode=644 {file} osize=0 = 3
         A 2-3 fallocate fd=3 off=0 size=1000000 {file} osize=1000000 = 0"
    );
    assert_eq!(most_bytes(&script), 1_000_000);
    for at in (10..50).step_by(4) {
        script += &format!(
            "\n A {at}-{} ftruncate fd=3 off=0 {file} osize=0 = 0
             A {}-{} fallocate fd=3 off=0 size=1000000 {file} osize=1000000 = 0",
            at + 1,
            at + 2,
            at + 3
        );
    }
    assert_eq!(most_bytes(&script), 1_000_000);
    let twice = format!(
        "{script}\n A 60-61 fallocate flags=1 fd=3 off=500000 size=1000000 {file} osize=1000000 = 0"
    );
    assert_eq!(most_bytes(&twice), 1_500_000);
    let gone = format!(
        "{script}\n A 60-61 unlink f = 0
         A 62-63 open g flags=102 mode=644 ino=8 omode=100644 osize=0 = 4
         A 64-65 fallocate fd=4 off=0 size=900000 ino=8 omode=100644 osize=900000 = 0"
    );
    assert_eq!(most_bytes(&gone), 1_000_000);
}

#[test]
fn what_is_written_where_room_was_reserved_takes_no_more() {
    let file = "ino=7 omode=100644";
    let script = format!(
        "A 0-1 open f flags=102 mode=644 {file} osize=0 = 3
         A 2-3 fallocate fd=3 off=0 size=1000000 {file} osize=1000000 = 0
         A 4-5 pwrite64 fd=3 off=0 size=600000 {file} osize=1000000 = 600000
         A 6-7 pwrite64 fd=3 off=600000 size=300000 {file} osize=1000000 = 300000"
    );
    // The first stretch may begin and end within a block.
    assert_eq!(most_bytes(&script), 1_000_000 + 2 * 4096);
}

#[test]
fn copies_that_are_removed_need_room_once() {
    let mut script = String::from(
        "tree a ino=5 size=1000000
         A 0-1 open a flags=0 ino=5 omode=100644 osize=1000000 = 3",
    );
    for n in 0..10 {
        let at = 10 + 10 * n;
        let ino = 100 + n;
        script += &format!(
            "\n A {at}-{} open b{n} flags=102 mode=644 ino={ino} omode=100644 osize=0 = 4
             A {}-{} copy_file_range fd=3 fd2=4 ino=5 omode=100644 osize=1000000 size=1000000 off=-1 = 1000000
             A {}-{} close fd=4 = 0
             A {}-{} unlink b{n} = 0",
            at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7
        );
    }
    assert_eq!(most_bytes(&script), 2_000_000 + 2 * 4096);
}

#[test]
fn room_where_data_is_takes_no_more() {
    let file = "ino=7 omode=100644";
    let script = format!(
        "A 0-1 open f flags=102 mode=644 {file} osize=0 = 3
         A 2-3 pwrite64 fd=3 off=0 size=600000 {file} osize=600000 = 600000
         A 4-5 fallocate fd=3 off=0 size=1000000 {file} osize=1000000 = 0"
    );
    assert_eq!(most_bytes(&script), 1_000_000);
}

#[test]
fn room_of_files_without_a_name_does_not_add_up() {
    let mut script = String::new();
    for n in 0..10 {
        let at = 10 * n;
        let file = format!("ino={} omode=100644", 100 + n);
        script += &format!(
            "A {at}-{} open f flags=102 mode=644 {file} osize=0 = 3
             A {}-{} unlink f = 0
             A {}-{} fallocate fd=3 off=0 size=1000000 {file} osize=1000000 = 0
             A {}-{} close fd=3 = 0\n",
            at + 1,
            at + 2,
            at + 3,
            at + 4,
            at + 5,
            at + 6,
            at + 7
        );
    }
    assert!(most_bytes(&script) <= 1_000_000);
}

#[test]
fn a_file_without_a_name_needs_room_once_it_gets_one() {
    let directory = "tree d ino=6 mode=40755";
    let needed = most_bytes(directory);
    let seen = "ino=7 omode=100640";
    let made = format!(
        "{directory}
         A 0-1 openat d flags=20200002 {seen} osize=0 = 3
         A 2-3 pwrite64 fd=3 off=0 size=4096 {seen} osize=4096 = 4096"
    );
    assert_eq!(most_bytes(&made), needed);
    let linked = format!("{made}\n A 4-5 linkat d a flags=10000 dirfd=3 base=3 {seen} = 0");
    assert!(most_bytes(&linked) >= needed + 4096);
    let plan = plan(&linked);
    let tree = Tree::expected(&plan, &Linear::walk(&plan).world);
    let thing = &tree.things[tree.names[b"a".as_slice()]];
    assert_eq!(thing.written.ranges(), [(0, 4096)]);
    let again = format!(
        "{linked}
         A 6-7 unlink a ino=7 = 0
         A 8-9 openat b flags=102 ino=8 omode=100640 osize=0 = 4
         A 10-11 pwrite64 fd=4 off=0 size=4096 ino=8 omode=100640 osize=4096 = 4096"
    );
    assert_eq!(most_bytes(&again), most_bytes(&linked));
}
