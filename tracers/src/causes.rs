//! Causes of waiting, from the kernel stack on which a thread sleeps.
//!
//! The rules are those of the analysis, handed over as data: stack_rules.py describes them, and
//! analysis/tests/unit/test_causes_live.py compares both sides on recorded stacks.

use std::io::BufRead;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::symbols::Functions;

/// Suffixes that compilers add to the names of clones of a function.
const CLONES: [&str; 5] = [".constprop", ".isra", ".part", ".cold", ".llvm"];

/// A frame of a rule.
#[derive(Debug)]
struct Frame {
    /// No other frame may lie between the one before and this one.
    next: bool,
    /// Alternatives; `*` stands for any characters.
    names: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    cause: String,
    frames: Vec<Frame>,
    around: bool,
    last_resort: bool,
}

impl Rule {
    fn of(value: &Value) -> Option<Rule> {
        let flag = |name: &str| value[name].as_bool().unwrap_or(false);
        let frame = |frame: &Value| {
            let names = frame["names"].as_array()?.iter();
            Some(Frame {
                next: frame["next"].as_bool()?,
                names: names
                    .map(|name| name.as_str().map(str::to_owned))
                    .collect::<Option<_>>()?,
            })
        };
        Some(Rule {
            cause: value["cause"].as_str()?.to_owned(),
            frames: value["frames"]
                .as_array()?
                .iter()
                .map(frame)
                .collect::<Option<_>>()?,
            around: flag("around"),
            last_resort: flag("last_resort"),
        })
    }

    /// Return the innermost frame at which a match begins.
    fn place(&self, stack: &[&str]) -> Option<usize> {
        (0..stack.len()).find(|at| self.holds(0, *at, stack))
    }

    /// Return true if the frames of the rule from `number` on match, the first of them at `at`.
    fn holds(&self, number: usize, at: usize, stack: &[&str]) -> bool {
        let frame = &self.frames[number];
        if !frame.names.iter().any(|name| matches(name, stack[at])) {
            return false;
        }
        match self.frames.get(number + 1) {
            None => true,
            Some(next) => {
                let farthest = if next.next { at + 2 } else { stack.len() };
                (at + 1..farthest.min(stack.len())).any(|at| self.holds(number + 1, at, stack))
            }
        }
    }
}

/// Return true if a name matches a pattern, in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(first) else {
        return false;
    };
    (0..=name.len())
        .filter_map(|at| name.get(at..))
        .any(|end| matches(rest, end))
}

/// Return a function's name without the suffixes that compilers add to clones.
fn bare(name: &str) -> &str {
    let cut = CLONES.iter().filter_map(|clone| name.find(clone)).min();
    &name[..cut.unwrap_or(name.len())]
}

/// Return the first rule that matches, or, if that rule is `around`, a better one for the inner
/// frames.
fn first<'r>(rules: &'r [Rule], stack: &[&str]) -> Option<&'r Rule> {
    let (rule, at) = rules
        .iter()
        .find_map(|rule| Some((rule, rule.place(stack)?)))?;
    let inner = if rule.around {
        first(rules, &stack[..at])
    } else {
        None
    };
    inner.filter(|inner| !inner.last_resort).or(Some(rule))
}

fn read(path: &Path) -> Result<Vec<Rule>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("Failed to read {}", path.display()))?;
    let list: Value = serde_json::from_str(&text)?;
    let rules = list
        .as_array()
        .and_then(|all| all.iter().map(Rule::of).collect());
    match rules {
        Some(rules) => Ok(rules),
        None => bail!("{} holds no rules of causes", path.display()),
    }
}

/// Names the causes of stacks; each distinct stack is judged only once.
#[derive(Debug)]
pub struct Causes {
    rules: Vec<Rule>,
    functions: Functions,
    known: FxHashMap<Vec<u64>, Option<usize>>,
}

impl Causes {
    /// Read the rules, and the functions of this kernel.
    pub fn read(path: &Path) -> Result<Causes> {
        Ok(Causes {
            rules: read(path)?,
            functions: Functions::read()?,
            known: FxHashMap::default(),
        })
    }

    /// Return the causes that the rules name, in their order and with repetitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.cause.as_str())
    }

    /// Return the cause of a sleep on this stack, if a rule names one.
    pub fn of(&mut self, frames: &[u64]) -> Option<&str> {
        let number = match self.known.get(frames) {
            Some(number) => *number,
            None => {
                let names = frames.iter().filter_map(|at| self.functions.at(*at));
                let names: Vec<&str> = names.map(bare).collect();
                let found = first(&self.rules, &names);
                let number = found
                    .and_then(|found| self.rules.iter().position(|rule| std::ptr::eq(rule, found)));
                self.known.insert(frames.to_vec(), number);
                number
            }
        };
        number.map(|at| self.rules[at].cause.as_str())
    }
}

/// Print the cause of each stack of stdin, one line "inner < outer" each; an empty line if no rule
/// matches.
pub fn classify(path: &Path) -> Result<()> {
    let rules = read(path)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let names: Vec<&str> = line
            .split('<')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(bare)
            .collect();
        println!(
            "{}",
            first(&rules, &names).map_or("", |rule| rule.cause.as_str())
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stars_and_clones_match_as_in_the_analysis() {
        assert!(matches("io_schedule*", "io_schedule_timeout"));
        assert!(matches("*_write", "vfs_write"));
        assert!(matches(
            "fuse_wait_on_*writeback",
            "fuse_wait_on_page_writeback"
        ));
        assert!(!matches("schedule", "schedule_timeout"));
        assert_eq!(bare("jbd2_log_wait_commit.part.0"), "jbd2_log_wait_commit");
        assert_eq!(bare("f.isra.0.cold"), "f");
    }

    #[test]
    fn the_inner_wait_names_what_is_done_around_it() {
        let rule = |cause: &str, frames: Value, around: bool, last_resort: bool| {
            let value = json!({"cause": cause, "frames": frames, "around": around, "last_resort": last_resort});
            Rule::of(&value).expect("a rule")
        };
        let name = |name: &str, next: bool| json!({"next": next, "names": [name]});
        let rules = [
            rule("memory", json!([name("shrink_*", false)]), true, false),
            rule(
                "commit",
                json!([name("wait", false), name("sync", true)]),
                false,
                false,
            ),
            rule("lock", json!([name("mutex", false)]), false, true),
        ];
        let cause = |stack: &[&str]| first(&rules, stack).map(|rule| rule.cause.clone());
        assert_eq!(cause(&["wait", "sync"]).as_deref(), Some("commit"));
        assert_eq!(cause(&["wait", "x", "sync"]), None);
        assert_eq!(
            cause(&["wait", "sync", "shrink_lru"]).as_deref(),
            Some("commit")
        );
        assert_eq!(cause(&["mutex", "shrink_lru"]).as_deref(), Some("memory"));
    }
}
