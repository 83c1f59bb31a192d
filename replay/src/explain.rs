//! Explains why an operation waits for others: the edges that the engine uses, with their reasons.

use anyhow::Result;
use foldhash::HashSet;
use serde_json::{Value, json};
use spoolscope_traces::records::{NONE, PLAN_FORK, PlanOp};
use std::collections::BTreeMap;

use crate::cli::Order;
use crate::engine::schedule::streams;
use crate::model::order::keys::{Key, Why};
use crate::model::order::moments;
use crate::model::order::reasons;
use crate::model::state::required_names;
use crate::plan::Plan;
use crate::planned::{self, Planned};
use crate::semantics::{self, Kind, Lease, Lock, XattrCall};
use crate::touches::{self, Makes, Need};

/// Returns the order of a whole plan, and for each operation asked about, the operations that it
/// waits for and those that wait for it.
pub fn explain(plan: &Plan, planned: &mut Planned, order: Order, asked: &[u32]) -> Result<Value> {
    let rules = planned.take_rules()?;
    let why = planned.why()?;
    let asked = asked.iter().filter(|at| (**at as usize) < plan.ops().len());
    let asked: Vec<u32> = asked.copied().collect();
    let mut explainer = Explainer::new(plan, &why, &rules.unexplained);
    let kinds = explainer.gather(order, &asked)?;
    let explained: Vec<Value> = asked.iter().map(|at| explainer.explained(*at)).collect();
    Ok(json!({"edges": kinds, "contests": rules.contests, "explained": explained}))
}

const CHANGE_CWD: [Kind; 2] = [Kind::Chdir, Kind::Fchdir];
const LIST: [Kind; 3] = [Kind::Getdents, Kind::Open, Kind::Seek];

struct Explainer<'a> {
    plan: &'a Plan,
    ops: &'a [PlanOp],
    position: Vec<u32>,
    /// First slot of each thread, operation of each slot.
    streams: (Vec<u32>, Vec<u32>),
    why: &'a planned::Why<'a>,
    /// Edges with reasons, and those that they cover, of the operations asked about.
    kept: Vec<Why>,
    unexplained: &'a [u32],
}

impl<'a> Explainer<'a> {
    fn new(plan: &'a Plan, why: &'a planned::Why<'a>, unexplained: &'a [u32]) -> Self {
        let ops = plan.ops();
        let (first, slots, _) = streams(plan);
        Self {
            plan,
            ops,
            position: plan.positions(),
            streams: (first, slots),
            why,
            kept: Vec::new(),
            unexplained,
        }
    }

    /// Counts edges by kind, and keeps those of the operations asked about.
    fn gather(&mut self, order: Order, asked: &[u32]) -> Result<BTreeMap<&'static str, usize>> {
        let (own, on): (HashSet<u32>, HashSet<(u32, u32)>) = asked
            .iter()
            .map(|at| {
                (
                    *at,
                    (
                        self.ops[*at as usize].thread,
                        self.position[*at as usize] + 1,
                    ),
                )
            })
            .unzip();
        let objects = match order {
            Order::None => &[],
            Order::Resource | Order::Recorded => &*self.why.reasons,
        };
        let moments = match order {
            Order::None | Order::Resource => Vec::new(),
            Order::Recorded => moments::edges(self.plan),
        };
        let moments = moments.into_iter().map(|(op, thread, finished)| {
            Ok(Why {
                op,
                thread,
                finished,
                key: None,
                waits: true,
            })
        });
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for why in reasons::decoded(objects).chain(moments) {
            let why = why?;
            if why.waits {
                *kinds.entry(reasons::kind(&why)).or_default() += 1;
            }
            if own.contains(&why.op) || on.contains(&(why.thread, why.finished)) {
                self.kept.push(why);
            }
        }
        // The edges come from hash tables, in no order.
        self.kept
            .sort_unstable_by_key(|why| (why.op, why.thread, why.finished, why.key, why.waits));
        Ok(kinds)
    }

    fn explained(&self, at: u32) -> Value {
        let op = &self.ops[at as usize];
        let position = self.position[at as usize];
        let forks = |other: &&PlanOp| other.op == PLAN_FORK && other.arg == i64::from(op.thread);
        let fork = || self.ops.iter().position(|other| forks(&other));
        let before = match position.checked_sub(1) {
            Some(before) => Some(self.op_at(op.thread, before) as usize),
            None => fork(),
        };
        let of_this = |why: &&Why| why.op == at;
        let on_this = |why: &&Why| why.thread == op.thread && why.finished == position + 1;
        let (waits, covered): (Vec<&Why>, Vec<&Why>) =
            self.kept.iter().filter(of_this).partition(|why| why.waits);
        let after = self.kept.iter().filter(on_this).filter(|why| why.waits);
        json!({
            "op": at,
            "previous": before,
            "waits": waits.into_iter().map(|why| self.reason(why)).collect::<Vec<_>>(),
            "covered": covered.into_iter().map(|why| self.reason(why)).collect::<Vec<_>>(),
            "waited_by": after.map(|why| self.reason(why)).collect::<Vec<_>>(),
            "may_sleep": semantics::lock(op).is_some_and(|(_, blocks)| blocks),
            "unexplained": self.unexplained.contains(&at),
        })
    }

    /// Describes an edge: both operations, the object, and what each operation does with it.
    fn reason(&self, why: &Why) -> Value {
        let first = self.op_at(why.thread, why.finished - 1);
        let (op, before) = (&self.ops[why.op as usize], &self.ops[first as usize]);
        let mut edge = json!({"op": why.op, "before": first, "kind": reasons::kind(why)});
        let both = [op, before];
        let either = |kinds: &[Kind], is: &'static str, is_not: &'static str| {
            both.map(|op| match kinds.contains(&semantics::kind(op)) {
                true => is,
                false => is_not,
            })
        };
        let (what, [need, did]) = match why.key {
            None => (Value::Null, ["", "ended"]),
            Some(Key::Name(path)) => (self.path(path), [needed(op, path), done(before, path)]),
            Some(Key::Data(ino)) => (json!(ino), both.map(|op| data(op, ino))),
            Some(Key::DataOf(_)) => (Value::Null, both.map(|op| data(op, 0))),
            Some(Key::Lock(key)) => (json!(key.ino()), both.map(lock)),
            Some(Key::Fd(_, fd)) => (json!(fd), both.map(|op| descriptor(op, fd))),
            Some(Key::Table(_)) => (Value::Null, either(&[Kind::Fork], "copies", "changes")),
            Some(Key::Cwd(_)) => (Value::Null, either(&CHANGE_CWD, "changes", "uses")),
            Some(Key::Umask(_)) => (Value::Null, either(&[Kind::Umask], "changes", "uses")),
            Some(Key::Position(_)) => (json!(op.fd), ["moves", "moves"]),
            Some(Key::Listing(path)) => (self.path(path), either(&LIST, "lists", "changes")),
            Some(Key::Xattr(_, name)) => (self.path(name), both.map(xattr)),
            Some(Key::Xattrs(_)) => (Value::Null, either(&[Kind::ListXattr], "lists", "changes")),
            Some(Key::Attributes(_)) => {
                let changes = [before, op]
                    .into_iter()
                    .find(|op| attributes(op) == "changes");
                let path = changes.map_or(Value::Null, |op| self.named(op));
                (path, both.map(attributes))
            }
            Some(Key::Lease(ino)) => (json!(ino), both.map(lease)),
            Some(Key::Exit(_)) => (Value::Null, ["ends", "ended"]),
            Some(Key::Copies(_)) => (Value::Null, ["closes the last copy", "closes one"]),
        };
        (edge["what"], edge["need"], edge["did"]) = (what, json!(need), json!(did));
        edge
    }

    fn op_at(&self, thread: u32, position: u32) -> u32 {
        let (first, slots) = &self.streams;
        slots[(first[thread as usize] + position) as usize]
    }

    fn named(&self, op: &PlanOp) -> Value {
        match op.path {
            NONE => Value::Null,
            path => self.path(path),
        }
    }

    fn path(&self, path: u32) -> Value {
        let extra = (path as usize).checked_sub(self.plan.n_strings() as usize);
        let name = match extra {
            Some(extra) if path != NONE => &self.why.names[extra],
            _ => self.plan.string(path),
        };
        json!(String::from_utf8_lossy(name))
    }
}

/// Returns what an operation needs a name to be, or makes of it.
fn needed(op: &PlanOp, path: u32) -> &'static str {
    let touches = touches::of(op);
    let own = touches.iter().flatten().find(|touch| touch.path == path);
    match own.map(|touch| (touch.need, touch.makes)) {
        None if required_names::went_round(op) => "through",
        None => "above",
        Some((_, Makes::Gone)) => "removes",
        Some((Need::Absent, _)) => "absent",
        Some((Need::Empty, _)) => "empty",
        Some((Need::Full, _)) => "full",
        Some((Need::Any, Makes::Same)) => "looks",
        Some((Need::Any, _)) => "changes",
        Some(_) => "present",
    }
}

/// Returns what an operation did to a name.
fn done(op: &PlanOp, path: u32) -> &'static str {
    let touches = touches::of(op);
    let own = touches.iter().flatten().find(|touch| touch.path == path);
    match own.map(|touch| touch.makes) {
        None => "used",
        Some(Makes::Same) if op.ret < 0 => "met",
        Some(Makes::Same) => "found",
        Some(Makes::Gone) if semantics::kind(op) == Kind::Rename => "moved away",
        Some(Makes::Whiteout) => "moved away",
        Some(Makes::Gone) => "removed",
        Some(Makes::Object) => "made",
        Some(Makes::Moved) => "moved here",
        Some(Makes::Linked) => "linked",
        Some(Makes::Swapped) => "swapped",
    }
}

fn data(op: &PlanOp, ino: u64) -> &'static str {
    let own = op.ino == ino;
    let changes = match semantics::copies(op) {
        true => !own,
        // The record of a truncate by name holds no inode.
        false => (own || op.ino == 0) && crate::model::state::sizes::changes_size(op),
    };
    match changes {
        true => "changes",
        false => "reads",
    }
}

fn lease(op: &PlanOp) -> &'static str {
    match semantics::lease(op) {
        Some(Lease::Asks) => "sets the lease of",
        Some(Lease::Looks) => "looks at the lease of",
        Some(Lease::Opens) => "opens",
        Some(Lease::Closes) | None => "closes",
    }
}

fn lock(op: &PlanOp) -> &'static str {
    match semantics::lock(op).map(|(role, _)| role) {
        Some(Lock::Exclusive) => "takes",
        Some(Lock::Shared) => "shares",
        Some(Lock::Refused) => "is refused",
        Some(Lock::Release) => "gives up",
        None => "gives up by closing",
    }
}

fn descriptor(op: &PlanOp, fd: i32) -> &'static str {
    match () {
        () if semantics::kind(op) == Kind::Open => "opens",
        () if semantics::makes_fd(op) && op.ret == i64::from(fd) => "makes",
        () if semantics::kind(op) == Kind::Close => "closes",
        () => "uses",
    }
}

fn xattr(op: &PlanOp) -> &'static str {
    match semantics::xattr_call(op) {
        Some(XattrCall::Set) => "sets",
        Some(XattrCall::Remove) => "removes",
        _ => "reads",
    }
}

fn attributes(op: &PlanOp) -> &'static str {
    match semantics::kind(op) {
        _ if semantics::was_denied(op) => "is refused by",
        Kind::Chmod | Kind::Chown | Kind::Touch | Kind::SetXattr => "changes",
        _ => "follows",
    }
}

#[cfg(test)]
mod tests {
    use super::explain;
    use crate::cli::Order;
    use crate::model::order::moments;
    use crate::model::order::one_order::Linear;
    use crate::plan::Plan;
    use crate::planned::{Planned, Walked};
    use crate::testing::plan;
    use serde_json::{Value, json};
    use spoolscope_traces::records::NONE;
    use std::collections::BTreeSet;

    fn explained(plan: &Plan, order: Order, asked: &[u32]) -> Value {
        let mut planned = Planned::Walked(Box::new(Walked::of(plan, true)));
        explain(plan, &mut planned, order, asked).expect("reasons")
    }

    fn explanation(script: &str, at: u32) -> Value {
        explained(&plan(script), Order::Resource, &[at])["explained"][0].clone()
    }

    /// Returns kind, what, need and did of the only edge.
    fn only(script: &str, at: u32) -> [Value; 4] {
        let found = explanation(script, at);
        let waits = found["waits"].as_array().expect("edges");
        assert_eq!(waits.len(), 1, "{found}");
        ["kind", "what", "need", "did"].map(|word| waits[0][word].clone())
    }

    #[test]
    fn a_name_is_needed_and_was_moved_here() {
        let script = "
            tree tmp/1 ino=7
            A 0-10 rename tmp/1 new/1 ino=7 = 0
            B 20-30 stat new/1 ino=7 = 0
            C 40-50 unlink new/1 ino=7 = 0
        ";
        assert_eq!(only(script, 1), ["name", "new/1", "present", "moved here"]);
        let found = explanation(script, 1);
        assert_eq!(found["waits"][0]["before"], 0);
        assert_eq!(found["waited_by"][0]["op"], 2);
        assert_eq!(found["waited_by"][0]["did"], "found");
    }

    #[test]
    fn a_name_must_be_gone_first() {
        let script = "
            tree a ino=7
            A 0-10 unlink a ino=7 = 0
            B 20-30 stat a = -2
        ";
        assert_eq!(only(script, 1), ["name", "a", "absent", "removed"]);
    }

    #[test]
    fn a_size_was_written() {
        let script = "
            tree a ino=7 size=0
            A 0-10 pwrite64 a fd=3 ino=7 off=0 size=5 osize=5 omode=100644 = 5
            B 20-30 fstat fd=3 ino=7 osize=5 omode=100644 = 0
        ";
        assert_eq!(
            only(script, 1),
            [json!("data"), json!(7), json!("reads"), json!("changes")]
        );
    }

    #[test]
    fn a_mode_refused_it() {
        let script = "
            tree d mode=40755
            A 0-10 chmod d mode=700 = 0
            B 20-30 open d/f flags=0 = -13
        ";
        let kind = "mode, owner or times";
        assert_eq!(only(script, 1), [kind, "d", "is refused by", "changes"]);
    }

    #[test]
    fn symlinks_led_it_round() {
        let script = "
            tree a mode=120777 target=b
            A 0-10 symlink b a = 0
            B 20-30 stat a = -40
        ";
        assert_eq!(only(script, 1), ["name", "b", "through", "made"]);
    }

    #[test]
    fn a_lock_was_given_up() {
        let script = "
            A 0-10 fcntl fd=3 ino=7 cmd=6 lock=1 = 0
            A 20-30 fcntl fd=3 ino=7 cmd=6 lock=2 = 0
            B 40-50 fcntl fd=3 ino=7 cmd=6 lock=1 = 0
        ";
        assert_eq!(
            only(script, 2),
            [json!("lock"), json!(7), json!("takes"), json!("gives up")]
        );
    }

    #[test]
    fn what_the_thread_has_waited_for_is_shown_but_is_no_edge() {
        let script = "
            tree a ino=7
            tree b ino=8
            A 0-10 rename a c ino=7 = 0
            A 20-30 rename b d ino=8 = 0
            B 40-50 stat d ino=8 = 0
            B 60-70 stat c ino=7 = 0
        ";
        let found = explanation(script, 3);
        assert_eq!(found["waits"], json!([]));
        assert_eq!(found["covered"][0]["what"], "c");
        assert_eq!(found["previous"], 2);
    }

    #[test]
    fn edges_shown_are_those_the_engine_waits_for() {
        let script = "
            A 0-10 mkdir d = 0
            B 5-20 FORK C = 0
            C 21-40 open d/x flags=101 ino=9 omode=100644 osize=0 = 3
            A 30-50 stat d/x ino=9 omode=100644 osize=0 = 0
            B 45-60 rename d/x d/y ino=9 = 0
            C 70-80 stat d/x = -2
            A 90-95 unlink d/y ino=9 = 0
        ";
        let plan = plan(script);
        let linear = Linear::walk(&plan);
        for order in [Order::None, Order::Resource, Order::Recorded] {
            let all: Vec<u32> = (0..plan.ops().len() as u32).collect();
            let found = explained(&plan, order, &all);
            let found = found["explained"].as_array().expect("all").iter();
            let found: BTreeSet<(u64, u64)> = found
                .flat_map(|one| one["waits"].as_array().expect("edges"))
                .map(|edge| {
                    (
                        edge["op"].as_u64().unwrap_or(0),
                        edge["before"].as_u64().unwrap_or(0),
                    )
                })
                .collect();
            let mut used = match order {
                Order::None => Vec::new(),
                _ => linear.edges.found.clone(),
            };
            if order == Order::Recorded {
                used.extend(moments::edges(&plan));
            }
            let before = |thread: u32, finished: u32| {
                let of_thread = |(_, op): &(usize, &_)| {
                    let op: &spoolscope_traces::records::PlanOp = op;
                    op.thread == thread
                };
                let mut own = plan.ops().iter().enumerate().filter(of_thread);
                own.nth(finished as usize - 1)
                    .map_or(NONE as usize, |(at, _)| at) as u64
            };
            let used: BTreeSet<(u64, u64)> = used
                .into_iter()
                .map(|(op, thread, finished)| (u64::from(op), before(thread, finished)))
                .collect();
            assert_eq!(found, used);
            assert_eq!(found.is_empty(), order == Order::None);
        }
    }
}
