//! Triggers of a freeze: rules, judged on every record that is stored and, at intervals, on calls
//! and locks under way.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use spoolscope_traces::records::{
    BTRFS_COMMIT, BTRFS_SYNC_FILE, JBD2_END, Journal, NO_CALL, SWITCH_BLOCKED, Switch, Syscall,
    XFS_ICLOG_DONE,
};

use crate::causes::Causes;
use crate::cli::Options;
use crate::holds::Holds;
use crate::host;
use crate::probes::Probes;
use crate::rules::{Limit, Rule};
use crate::symbols::Functions;
use crate::under_way::{UnderWay, name_frames};

/// Looks at calls and locks under way within the shortest limit of a rule.
const LOOKS: u32 = 10;
/// Bounds of the time between two looks.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(1);

/// A call: its thread and begin.
type Call = (u32, u64);

/// Judges everything that is recorded by the rules of --freeze-on.
#[derive(Debug, Default)]
pub struct Trigger {
    rules: Vec<Rule>,
    causes: Option<Causes>,
    /// For each call under way, the time that the causes of rules have cost it so far, by the
    /// rule's number.
    waited: FxHashMap<Call, Vec<(usize, u64)>>,
    /// For each rule on commits, the end times of the last commits.
    commits: FxHashMap<usize, VecDeque<u64>>,
    holds: Holds,
    /// Calls and locks under way that have frozen the recorder: none does so twice.
    done: FxHashSet<String>,
    broken: Option<Freeze>,
    looked: Option<Instant>,
}

impl Trigger {
    /// Return a trigger with the rules of these options.
    pub fn of(options: &Options) -> Result<Trigger> {
        let waits = |rule: &Rule| matches!(&rule.limit, Limit::Waited { .. });
        let causes = match &options.cause_rules {
            _ if !options.freeze_on.iter().any(waits) => None,
            Some(path) => Some(Causes::read(path)?),
            None => bail!("no rules of causes given"),
        };
        Ok(Trigger {
            rules: options.freeze_on.clone(),
            causes,
            ..Trigger::default()
        })
    }

    /// Take what broke a rule. While the recorder `rests` it is dropped; a call or lock that is
    /// still under way afterwards breaks the rule again.
    pub fn take(&mut self, rests: bool) -> Option<Freeze> {
        let mut freeze = self.broken.take().filter(|_| !rests)?;
        self.done.extend(freeze.subject.clone());
        freeze.name_frames();
        Some(freeze)
    }

    fn breaks(&mut self, freeze: Freeze) {
        let done = freeze
            .subject
            .as_ref()
            .is_some_and(|s| self.done.contains(s));
        if self.broken.is_none() && !done {
            self.broken = Some(freeze);
        }
    }

    /// Judge a call that has returned.
    pub fn called(&mut self, call: &Syscall) {
        let waited = self.waited.remove(&(call.tid, call.start_ns));
        if self.rules.is_empty() {
            return;
        }
        if self.rules.iter().any(Rule::is_of_locks) {
            self.holds.called(call);
        }
        let took_ns = call.end_ns - call.start_ns;
        let named = format_args!("call {} of thread {}", call.seq, call.tid).to_string();
        let mut found = None;
        for (number, rule) in self.rules.iter().enumerate() {
            let why = match &rule.limit {
                Limit::Slow(limit) if took_ns > *limit => {
                    format!("slow: {named} took {took_ns} ns")
                }
                Limit::Errno(errno) if call.ret == -errno => {
                    format!("errno {errno}: {named} took {took_ns} ns")
                }
                Limit::Waited { cause, ns } => {
                    let asleep = waited.iter().flatten().find(|(of, _)| *of == number);
                    let spent = machine(cause, call).or(asleep.map(|(_, ns)| *ns));
                    match spent.filter(|spent| spent > ns) {
                        Some(spent) => format!("{cause}: {named} waited {spent} ns for it"),
                        None => continue,
                    }
                }
                _ => continue,
            };
            let about = json!({"call": {"tid": call.tid, "start_ns": call.start_ns}});
            found = Some(Freeze::by(rule, why, about, None));
            break;
        }
        if let Some(freeze) = found {
            self.breaks(freeze);
        }
    }

    /// Add an absence from the CPU to the causes, by its stack.
    pub fn switched(&mut self, switch: &Switch, frames: &[u64]) {
        let Some(causes) = &mut self.causes else {
            return;
        };
        if switch.call_ns == NO_CALL || switch.state != SWITCH_BLOCKED {
            return;
        }
        let Some(cause) = causes.of(frames) else {
            return;
        };
        let asleep_ns = switch.wake_ns.max(switch.out_ns) - switch.out_ns;
        for (number, rule) in self.rules.iter().enumerate() {
            if !matches!(&rule.limit, Limit::Waited { cause: named, .. } if named == cause) {
                continue;
            }
            let sums = self.waited.entry((switch.tid, switch.call_ns)).or_default();
            match sums.iter_mut().find(|(of, _)| *of == number) {
                Some((_, ns)) => *ns += asleep_ns,
                None => sums.push((number, asleep_ns)),
            }
        }
    }

    /// Judge an event of a journal.
    pub fn journal(&mut self, event: &Journal) {
        let ends = [JBD2_END, XFS_ICLOG_DONE, BTRFS_SYNC_FILE, BTRFS_COMMIT];
        if !ends.contains(&event.event) {
            return;
        }
        let mut found = None;
        for (number, rule) in self.rules.iter().enumerate() {
            let Limit::Commits { most, window_ns } = rule.limit else {
                continue;
            };
            let times = self.commits.entry(number).or_default();
            times.push_back(event.ts_ns);
            while times
                .front()
                .is_some_and(|at| at + window_ns <= event.ts_ns)
            {
                times.pop_front();
            }
            let n = times.len() as u64;
            if n > most {
                times.clear();
                let why = format!("commits: {n} in {window_ns} ns");
                let about =
                    json!({"commits": {"n": n, "window_ns": window_ns, "end_ns": event.ts_ns}});
                found = Some(Freeze::by(rule, why, about, None));
            }
        }
        if let Some(freeze) = found {
            self.breaks(freeze);
        }
    }

    /// Return the time between two looks at calls and locks under way; None if no rule needs them.
    fn period(&self) -> Option<Duration> {
        let limits = self.rules.iter().filter_map(Rule::under_way_ns);
        let shortest = Duration::from_nanos(limits.min()?) / LOOKS;
        Some(shortest.clamp(SHORTEST, LONGEST))
    }

    /// Look at calls and locks under way, if it is time; `wanted` selects the devices whose locks
    /// count.
    pub fn look(&mut self, probes: &Probes<'_>, wanted: impl Fn(u32) -> bool) -> Result<()> {
        let Some(period) = self.period() else {
            return Ok(());
        };
        if self.looked.is_some_and(|at| at.elapsed() < period) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        if self.rules.iter().any(Rule::is_of_calls) {
            let began_ns = host::clock(libc::CLOCK_MONOTONIC) as u64;
            let calls = probes.under_way()?;
            self.under_way(&calls, host::clock(libc::CLOCK_MONOTONIC) as u64);
            let alive: FxHashSet<Call> = calls.iter().map(|c| (c.tid, c.start_ns)).collect();
            // An absence of a call that has returned may come out of another ring later than the
            // call.
            let old_ns = began_ns.saturating_sub(LONGEST.as_nanos() as u64);
            self.waited
                .retain(|call, _| alive.contains(call) || call.1 > old_ns);
        }
        if self.rules.iter().any(Rule::is_of_locks) {
            let now_ns = self.holds.look(wanted)?;
            self.held(now_ns);
        }
        Ok(())
    }

    fn under_way(&mut self, calls: &[UnderWay], now_ns: u64) {
        let mut found = Vec::new();
        for call in calls {
            let key = (call.tid, call.start_ns);
            let cause = match (&mut self.causes, call.out_ns) {
                (Some(causes), 1..) => causes.of(call.frames()),
                _ => None,
            };
            for (number, rule) in self.rules.iter().enumerate() {
                let ns = now_ns.saturating_sub(call.start_ns);
                let named = || format!("a call of thread {} that has not returned", call.tid);
                let why = match &rule.limit {
                    Limit::InFlight(limit) if ns > *limit => {
                        format!("in-flight: {} for {ns} ns", named())
                    }
                    Limit::Waited { cause: asked, ns } if cause == Some(asked) => {
                        let before = self.waited.get(&key).into_iter().flatten();
                        let before: u64 = before.filter(|w| w.0 == number).map(|w| w.1).sum();
                        let waited = before + now_ns.saturating_sub(call.out_ns);
                        if waited <= *ns {
                            continue;
                        }
                        format!("{asked}: {} waits for it for {waited} ns", named())
                    }
                    _ => continue,
                };
                let subject = format!("{number} call {} {}", call.tid, call.start_ns);
                let about = json!({"in_flight": call.as_json(now_ns)});
                found.push(Freeze::by(rule, why, about, Some(subject)));
            }
        }
        found.into_iter().for_each(|freeze| self.breaks(freeze));
    }

    fn held(&mut self, now_ns: u64) {
        let mut found = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let Limit::LockHeld(limit) = rule.limit else {
                continue;
            };
            for hold in self.holds.longer_than(limit, now_ns) {
                let why = format!(
                    "lock-held: process {} has held a lock for {} ns",
                    hold.pid(),
                    hold.ns(now_ns)
                );
                let about = json!({"lock": hold.as_json(now_ns)});
                let subject = format!("{number} lock {}", hold.name());
                found.push(Freeze::by(rule, why, about, Some(subject)));
            }
        }
        found.into_iter().for_each(|freeze| self.breaks(freeze));
    }
}

/// Return the part of a call's time that belongs to a cause other than sleep, by the name of the
/// cause.
fn machine(cause: &str, call: &Syscall) -> Option<u64> {
    let stolen_ns = match call.stolen_ns {
        u64::MAX => 0, // unknown
        ns => ns,
    };
    match cause {
        "cpu" => Some(call.oncpu_ns.saturating_sub(stolen_ns)),
        "steal" => Some(stolen_ns),
        "runq" => Some(call.runq_ns),
        "preempt" => Some(call.preempted_ns),
        _ => None,
    }
}

/// The reason for a freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// The reason in words.
    pub why: String,
    /// The rule that was broken, as the user wrote it.
    pub rule: Option<String>,
    /// The object that broke it: a `call` that returned, one `in_flight`, a `lock`, or `commits`.
    pub about: Value,
    /// Identity of a call or lock that is still under way.
    subject: Option<String>,
}

impl Freeze {
    /// Return a freeze that no rule caused.
    pub fn because(why: &str) -> Freeze {
        Freeze {
            why: why.to_owned(),
            rule: None,
            about: json!({}),
            subject: None,
        }
    }

    /// Replace the addresses of the stack on which a call sleeps by names, as far as they are
    /// known.
    fn name_frames(&mut self) {
        if let Some(frames) = self.about.pointer_mut("/in_flight/frames") {
            name_frames(frames, Functions::read().ok().as_ref());
        }
    }

    fn by(rule: &Rule, why: String, about: Value, subject: Option<String>) -> Freeze {
        Freeze {
            why,
            rule: Some(rule.words.clone()),
            about,
            subject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(rules: &[&str]) -> Trigger {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
        Trigger {
            rules: rules.collect(),
            ..Trigger::default()
        }
    }

    #[test]
    fn only_calls_that_break_a_rule_freeze() {
        let rules = [
            r#"{"rule": "slow > 500ns", "slow_ns": 500}"#,
            r#"{"rule": "errno = EIO", "errno": 5}"#,
            r#"{"rule": "runq > 300ns", "cause": "runq", "ns": 300}"#,
        ];
        let broken = |end_ns, ret, runq_ns| {
            let mut trigger = trigger(&rules);
            trigger.called(&Syscall {
                start_ns: 100,
                end_ns,
                ret,
                runq_ns,
                ..Syscall::default()
            });
            trigger.take(false)
        };
        assert_eq!(broken(600, 0, 0), None);
        let slow = broken(601, 0, 0).expect("it is slow");
        assert_eq!(slow.why, "slow: call 0 of thread 0 took 501 ns");
        assert_eq!(slow.rule.as_deref(), Some("slow > 500ns"));
        assert_eq!(slow.about, json!({"call": {"tid": 0, "start_ns": 100}}));
        assert!(broken(101, -5, 0).is_some());
        assert_eq!(broken(101, -2, 0), None);
        assert!(broken(550, 0, 301).is_some_and(|f| f.why.starts_with("runq: call 0")));
        assert_eq!(broken(550, 0, 300), None);
    }

    #[test]
    fn commits_count_within_any_window() {
        let mut trigger = trigger(&[r#"{"rule": "commits > 2/s", "commits": 2, "window_ns": 10}"#]);
        let mut ends = |ts_ns, event| {
            trigger.journal(&Journal {
                ts_ns,
                event,
                ..Journal::default()
            });
            trigger.take(false).map(|freeze| freeze.why)
        };
        for ts_ns in [0, 5, 10, 15, 20] {
            assert_eq!(ends(ts_ns, JBD2_END), None, "two in ten");
        }
        assert_eq!(ends(21, JBD2_END - 1), None, "no end of a commit");
        let found = ends(24, XFS_ICLOG_DONE);
        assert_eq!(found.as_deref(), Some("commits: 3 in 10 ns"));
        assert_eq!(ends(25, JBD2_END), None, "they count but once");
    }

    #[test]
    fn what_is_under_way_freezes_once_but_not_in_vain() {
        let mut trigger = trigger(&[r#"{"rule": "in-flight > 5ns", "in_flight_ns": 5}"#]);
        let mut call: UnderWay = bytemuck::Zeroable::zeroed();
        (call.start_ns, call.tid) = (10, 7);
        trigger.under_way(&[call], 15);
        assert_eq!(trigger.take(false), None);
        trigger.under_way(&[call], 16);
        assert_eq!(trigger.take(true), None, "it rests");
        trigger.under_way(&[call], 17);
        let freeze = trigger.take(false).expect("still under way");
        assert_eq!(freeze.about["in_flight"]["ns"], 7);
        trigger.under_way(&[call], 18);
        assert_eq!(trigger.take(false), None, "once");
    }

    #[test]
    fn calls_on_locks_are_kept_only_for_a_rule_on_locks() {
        let lock = Syscall {
            call: spoolscope_traces::calls::id_of("flock"),
            ..Syscall::default()
        };
        let kept = |rule| {
            let mut trigger = trigger(&[rule]);
            trigger.called(&lock);
            format!("{:?}", trigger.holds) != format!("{:?}", Holds::default())
        };
        assert!(kept(r#"{"rule": "lock-held > 1s", "lock_held_ns": 1}"#));
        assert!(!kept(r#"{"rule": "slow > 1s", "slow_ns": 1}"#));
    }
}
