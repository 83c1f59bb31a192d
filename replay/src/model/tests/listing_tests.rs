//! Listings of a directory that itself comes and goes.

use crate::model::tests::order_tests::edges;

const BEFORE: &str = "
    tree d mode=40755 ino=5
    A 0-1 open d flags=200000 ino=5 omode=40755 = 3
";

#[test]
fn a_directory_is_removed_after_whoever_lists_it_without_finding_a_name() {
    let script = format!(
        "{BEFORE}
         A 10-20 getdents64 d base=0 fd=3 ino=5 omode=40755 size=32768 = 48
         B 30-40 rmdir d = 0"
    );
    assert!(edges(&script).contains(&(2, 1)));
}

#[test]
fn who_cannot_list_a_directory_that_is_gone_comes_after_its_removal() {
    let script = format!(
        "{BEFORE}
         A 5-6 getdents64 d base=0 fd=3 ino=5 omode=40755 size=32768 = 48
         B 10-20 rmdir d = 0
         A 30-40 getdents64 d base=0 fd=3 ino=5 omode=40755 size=32768 = -2"
    );
    assert!(edges(&script).contains(&(3, 2)));
}
