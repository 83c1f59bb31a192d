//! A tree inferred from calls alone gives them the results that they had.

use std::collections::BTreeMap;

use crate::model::expect::tree::Tree;
use crate::model::order::one_order::Linear;
use crate::testing::plan;

/// Directories (true) and files by name: a filesystem, as far as these calls can show.
#[derive(Clone, Default)]
struct Names(BTreeMap<String, bool>);

const NAMES: [&str; 9] = [
    "a", "b", "a/x", "a/y", "b/x", "b/y", "a/x/z", "b/x/z", "a/y/z",
];
const CALLS: [&str; 7] = [
    "stat", "create", "open", "unlink", "mkdir", "rmdir", "rename",
];

impl Names {
    fn parent(&self, name: &str) -> bool {
        name.rsplit_once('/')
            .is_none_or(|(above, _)| self.0.get(above) == Some(&true))
    }

    fn is_full(&self, name: &str) -> bool {
        let below = format!("{name}/");
        self.0.keys().any(|other| other.starts_with(&below))
    }

    /// Returns the result of a call, and applies its effect; ENOTDIR is taken as ENOENT.
    fn call(&mut self, call: &str, name: &str, other: &str) -> i64 {
        let known = self.0.get(name).copied();
        if !self.parent(name) {
            return -2;
        }
        match (call, known) {
            ("create" | "mkdir", Some(_)) => return -17,
            ("create" | "mkdir", None) => {
                self.0.insert(name.into(), call == "mkdir");
            }
            (_, None) => return -2,
            ("unlink" | "open", Some(true)) => return -21,
            ("unlink", Some(false)) => drop(self.0.remove(name)),
            ("rmdir", Some(false)) => return -20,
            ("rmdir", Some(true)) if self.is_full(name) => return -39,
            ("rmdir", Some(true)) => drop(self.0.remove(name)),
            ("rename", Some(directory)) => return self.rename(name, other, directory),
            _ => {}
        }
        if matches!(call, "open" | "create") {
            3
        } else {
            0
        }
    }

    fn rename(&mut self, name: &str, other: &str, directory: bool) -> i64 {
        match self.0.get(other).copied() {
            _ if !self.parent(other) => return -2,
            _ if other.starts_with(&format!("{name}/")) => return -22,
            Some(true) if !directory => return -21,
            Some(false) if directory => return -20,
            Some(true) if self.is_full(other) => return -39,
            _ => {}
        }
        let moved: Vec<String> = self
            .0
            .keys()
            .filter(|key| *key == name || key.starts_with(&format!("{name}/")))
            .cloned()
            .collect();
        for old in moved {
            if let Some(kind) = self.0.remove(&old) {
                self.0
                    .insert(format!("{other}{}", &old[name.len()..]), kind);
            }
        }
        0
    }
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }

    fn tree(&mut self) -> Names {
        let mut names = Names::default();
        for name in NAMES {
            if names.parent(name) && self.throw(2) == 0 {
                names.0.insert(name.into(), self.throw(3) > 0);
            }
        }
        names
    }
}

/// Call, its names, its result; true if a rename moved a directory.
type Call = (&'static str, &'static str, &'static str, i64, bool);

fn script(calls: &[Call]) -> String {
    let line = |(at, (call, name, other, ret, directory)): (usize, &Call)| {
        let (from, to) = (at * 10, at * 10 + 5);
        let moved = match (*ret, directory) {
            (0, true) => format!("{other} omode=40755"),
            (0, false) => format!("{other} omode=100644"),
            _ => (*other).into(),
        };
        let (call, second) = match *call {
            "create" => ("openat", "flags=301"),
            "open" => ("openat", "flags=1"),
            "rename" => ("rename", moved.as_str()),
            call => (call, ""),
        };
        format!("A {from}-{to} {call} {name} {second} = {ret}\n")
    };
    calls.iter().enumerate().map(line).collect()
}

#[test]
fn results_follow_from_the_tree_they_prove() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut calls_made = 0;
    for round in 0..3000 {
        let mut names = dice.tree();
        let shown = format!("{:?}", names.0);
        let calls: Vec<Call> = (0..=dice.throw(12))
            .filter_map(|_| {
                let call = CALLS[dice.throw(CALLS.len())];
                let name = NAMES[dice.throw(NAMES.len())];
                let other = NAMES[dice.throw(NAMES.len())];
                // No result shows which of the two names was missing; the source is assumed.
                let into_itself = other.starts_with(&format!("{name}/"));
                let unclear = call == "rename" && (into_itself || !names.parent(other));
                let directory = names.0.get(name) == Some(&true);
                (!unclear).then(|| {
                    let ret = names.call(call, name, other);
                    (call, name, other, ret, directory)
                })
            })
            .collect();
        let plan = plan(&script(&calls));
        let linear = Linear::walk(&plan);
        let tree = Tree::initial(&plan, &linear.world);
        let mut inferred = Names::default();
        for (name, thing) in &tree.names {
            let directory = tree.things[*thing].attributes.mode & libc::S_IFMT == libc::S_IFDIR;
            let name = String::from_utf8_lossy(name).into_owned();
            assert!(inferred.parent(&name), "round {round}: {name} has no place");
            inferred.0.insert(name, directory);
        }
        let first = format!("{:?}", inferred.0);
        for (at, (call, name, other, ret, _)) in calls.iter().enumerate() {
            calls_made += 1;
            assert_eq!(
                inferred.call(call, name, other),
                *ret,
                "round {round}, call {at}: {call} {name} {other}\n{}was {shown}\nis  {first}",
                script(&calls)
            );
        }
    }
    assert!(calls_made > 10_000);
}
