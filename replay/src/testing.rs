//! Plans written as text, for tests: one operation per line.
//!
//! `A 10-20 rename a b = 0` is thread A renaming between 10 and 20 ns. Further words set a member:
//! `flags=101`, `ino=7`, `osize=100`; `born=15` is the time of a child's birth. Lines that begin
//! with `tree` add an entry, those with `xattr` an attribute of one: `xattr a user.b 9` has 9
//! bytes.

use spoolscope_traces::records::{
    BASE_ROOT, NONE, PLAN_EXEC, PLAN_EXIT, PLAN_FORK, PlanEntry, PlanOp, PlanThread, PlanXattr,
};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::Path;

use crate::assemble::{Draft, pseudo};
use crate::plan::Plan;
use crate::semantics;

/// A plan under construction.
#[derive(Debug, Default)]
pub struct Script {
    threads: Vec<String>,
    draft: Draft,
    parents: Vec<u32>,
    pids: Vec<u32>,
    births: Vec<u64>,
}

/// Parses a script and opens it as a plan; panics on nonsense, it is test input.
pub fn plan(script: &str) -> Plan {
    try_plan(script).expect("a valid plan")
}

/// Opens a draft as a plan.
pub fn opened(draft: Draft) -> Plan {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(&draft.bytes()).expect("written");
    Plan::open(file.path()).expect("a valid plan")
}

/// As `plan`, for scripts that must be refused.
pub fn try_plan(script: &str) -> anyhow::Result<Plan> {
    let mut parsed = Script::default();
    for line in script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        parsed.line(line);
    }
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(&parsed.bytes())?;
    keep_as_seed(script, file.path())?;
    Plan::open(file.path())
}

/// Keeps a plan for `fuzz/` in the directory that SPOOLSCOPE_PLAN_SEEDS names.
fn keep_as_seed(script: &str, plan: &Path) -> anyhow::Result<()> {
    if let Some(place) = std::env::var_os("SPOOLSCOPE_PLAN_SEEDS") {
        let mut name = DefaultHasher::new();
        script.hash(&mut name);
        std::fs::copy(plan, Path::new(&place).join(name.finish().to_string()))?;
    }
    Ok(())
}

impl Script {
    fn string(&mut self, text: &str) -> u32 {
        self.draft.string(text.as_bytes())
    }

    fn thread(&mut self, name: &str) -> u32 {
        let known = self.threads.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.threads.push(name.into());
            self.parents.push(NONE);
            self.pids.push(self.threads.len() as u32);
            self.births.push(0);
            self.threads.len() - 1
        }) as u32
    }

    fn line(&mut self, line: &str) {
        let (left, ret) = line.split_once(" = ").unwrap_or((line, "0"));
        let words: Vec<&str> = left.split_whitespace().collect();
        match words[0] {
            "tree" => self.entry(&words[1..]),
            "xattr" => self.xattr(&words[1..]),
            _ => self.op(&words, ret.trim().parse().expect("a result")),
        }
    }

    fn entry(&mut self, words: &[&str]) {
        let mut entry = PlanEntry {
            mode: 0o100_644,
            target: NONE,
            ..PlanEntry::default()
        };
        entry.path = self.string(words[0]);
        for (key, value) in words[1..].iter().filter_map(|word| word.split_once('=')) {
            match key {
                "ino" => entry.ino = value.parse().expect("a number"),
                "size" => entry.size = value.parse().expect("a number"),
                "holes" => entry.holes = value.parse().expect("a number"),
                "mode" => entry.mode = u32::from_str_radix(value, 8).expect("octal"),
                "flags" => entry.flags = value.parse().expect("a number"),
                "target" => entry.target = self.string(value),
                _ => panic!("unknown key {key}"),
            }
        }
        self.draft.entries.push(entry);
    }

    fn xattr(&mut self, words: &[&str]) {
        let xattr = PlanXattr {
            path: self.string(words[0]),
            name: self.string(words[1]),
            length: words[2].parse().expect("a number"),
            ..PlanXattr::default()
        };
        self.draft.xattrs.push(xattr);
    }

    fn op(&mut self, words: &[&str], ret: i64) {
        let (start, end) = words[1].split_once('-').expect("start-end");
        let mut op = PlanOp {
            start_ns: start.parse().expect("a number"),
            end_ns: end.parse().expect("a number"),
            ret,
            call: self.draft.ops.len() as u64,
            ..pseudo(self.thread(words[0]), semantics::id_of(words[2]))
        };
        let mut names = words[3..].iter().filter(|word| !word.contains('='));
        match words[2] {
            "FORK" | "THREAD" => {
                let child = self.thread(names.next().expect("a child"));
                self.parents[child as usize] = op.thread;
                let mut born = words.iter().filter_map(|word| word.strip_prefix("born="));
                let born = born.next().map(|born| born.parse().expect("a number"));
                self.births[child as usize] = born.unwrap_or(0);
                if words[2] == "THREAD" {
                    self.pids[child as usize] = self.pids[op.thread as usize];
                }
                (op.op, op.arg) = (PLAN_FORK, i64::from(child));
            }
            "EXIT" => op.op = PLAN_EXIT,
            "EXEC" => op.op = PLAN_EXEC,
            _ => {
                if let Some(name) = names.next() {
                    (op.path, op.base) = (self.string(name), BASE_ROOT);
                }
                if let Some(name) = names.next() {
                    (op.path2, op.base2) = (self.string(name), BASE_ROOT);
                }
            }
        }
        for (key, value) in words[3..].iter().filter_map(|word| word.split_once('=')) {
            match key {
                "born" => continue,
                "given" => op.given = self.string(value),
                "given2" => op.given2 = self.string(value),
                _ => set(&mut op, key, value),
            }
        }
        self.draft.ops.push(op);
    }

    fn bytes(mut self) -> Vec<u8> {
        self.draft.threads = (0..self.threads.len())
            .map(|at| PlanThread {
                tid: 100 + at as u32,
                pid: 100 + self.pids[at],
                parent: self.parents[at],
                start_ns: self.births[at],
                cwd: NONE,
                umask: 0o022,
                ..PlanThread::default()
            })
            .collect();
        self.draft.bytes()
    }
}

fn set(op: &mut PlanOp, key: &str, value: &str) {
    let number: i64 = match key {
        "flags" | "mode" | "omode" => i64::from_str_radix(value, 8).expect("octal"),
        _ => value.parse().expect("a number"),
    };
    match key {
        "flags" => op.flags = number as u32,
        "mode" => op.mode = number as u32,
        "omode" => op.obj_mode = number as u16,
        "ino" => op.ino = number as u64,
        "osize" => op.obj_size = number,
        "off" => op.offset = number,
        "size" => op.size = number,
        "fd" => op.fd = number as i32,
        "fd2" => op.fd2 = number as i32,
        "cmd" => op.cmd = number as i32,
        "lock" => op.lock_type = number as u8,
        "whence" => op.lock_whence = number as u8,
        "arg" => op.arg = number,
        "call" => op.call = number as u64,
        "base" => op.base = number as u8,
        "base2" => op.base2 = number as u8,
        "dirfd" => op.dirfd = number as i32,
        _ => panic!("unknown key {key}"),
    }
}
