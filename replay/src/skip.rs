//! A plan without some calls: each is replaced by an empty operation, so that the pauses before and
//! after it stay.

use anyhow::{Result, ensure};
use spoolscope_traces::calls;
use spoolscope_traces::error_code::{Code, Failure};
use spoolscope_traces::records::{PLAN_LEFT_OUT, PlanOp, as_bytes};
use std::io::Write;
use std::slice;

use crate::assemble::pseudo;
use crate::plan::Plan;
use crate::semantics::id_of;

const FSYNCS: [u16; 2] = [id_of("fsync"), id_of("fdatasync")];

/// Calls that are left out.
#[derive(Debug, clap::Args)]
pub struct LeftOut {
    /// Leave out all calls of this name.
    #[arg(long = "skip")]
    names: Vec<String>,
    /// Make only every N-th fsync or fdatasync of each thread.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    fsync_every: u32,
}

impl LeftOut {
    pub fn is_nothing(&self) -> bool {
        self.names.is_empty() && self.fsync_every == 1
    }

    /// Returns the ids of the calls that are left out by name.
    fn ids(&self) -> Result<Vec<u16>> {
        let ids: Vec<u16> = self.names.iter().map(|name| id_of(name)).collect();
        for (name, id) in self.names.iter().zip(&ids) {
            ensure!(
                calls::by_id(*id).is_some(),
                Failure::new(Code::Usage, format!("there is no call '{name}'"), "")
            );
        }
        Ok(ids)
    }

    /// Writes a plan without these calls. All else in its file stays as it is.
    pub fn write_rest(&self, plan: &Plan, file: &mut impl Write) -> Result<()> {
        let ids = self.ids()?;
        let mut syncs = vec![0; plan.threads().len()];
        let mut is_gone = |op: &PlanOp| {
            if ids.contains(&op.op) || !FSYNCS.contains(&op.op) {
                return ids.contains(&op.op);
            }
            let number = &mut syncs[op.thread as usize];
            *number += 1;
            *number % self.fsync_every != 0
        };
        let (before, after) = plan.around_ops();
        file.write_all(before)?;
        for op in plan.ops() {
            let op = if is_gone(op) { emptied(op) } else { *op };
            file.write_all(as_bytes(slice::from_ref(&op)))?;
        }
        file.write_all(after)?;
        Ok(())
    }
}

/// Returns the empty operation in the place of a call; its `arg` is the id of that call.
fn emptied(op: &PlanOp) -> PlanOp {
    PlanOp {
        start_ns: op.start_ns,
        end_ns: op.end_ns,
        arg: i64::from(op.op),
        path: op.path,
        ..pseudo(op.thread, PLAN_LEFT_OUT)
    }
}

#[cfg(test)]
mod tests {
    use super::LeftOut;
    use crate::plan::Plan;
    use crate::semantics;
    use crate::testing::plan;

    const DURABLE: &str = "
        tree x ino=7
        A 0-1 open x flags=2 ino=7 omode=100644 osize=0 = 3
        A 2-3 fsync x fd=3 ino=7 = 0
        B 2-3 fsync y fd=4 ino=8 = 0
        A 4-5 write x fd=3 ino=7 size=5 osize=5 = 5
        A 6-9 fdatasync x fd=3 ino=7 = 0
        A 10-11 stat x ino=7 omode=100644 osize=5 = 0
        B 12-13 fsync y fd=4 ino=8 = 0
        A 14-15 fsync x fd=3 ino=7 = 0
    ";

    fn without(names: &[&str], fsync_every: u32) -> (Plan, Plan) {
        let names = names.iter().map(ToString::to_string).collect();
        let left_out = LeftOut { names, fsync_every };
        let (whole, mut file) = (
            plan(DURABLE),
            tempfile::NamedTempFile::new().expect("a file"),
        );
        left_out.write_rest(&whole, &mut file).expect("room");
        (whole, Plan::open(file.path()).expect("a valid plan"))
    }

    /// Returns the names of the operations of a thread.
    fn names(plan: &Plan, thread: u32) -> Vec<String> {
        let ops = plan.ops().iter().filter(|op| op.thread == thread);
        ops.map(semantics::name).collect()
    }

    #[test]
    fn calls_are_left_out_by_name_and_their_time_stays() {
        let (whole, rest) = without(&["fsync", "stat"], 1);
        let made = [
            "open",
            "left out",
            "write",
            "fdatasync",
            "left out",
            "left out",
        ];
        assert_eq!(names(&rest, 0), made);
        assert_eq!(names(&rest, 1), ["left out", "left out"]);
        for (before, after) in whole.ops().iter().zip(rest.ops()) {
            let of = |op: &super::PlanOp| (op.thread, op.start_ns, op.end_ns, op.path);
            assert_eq!(of(before), of(after));
        }
        assert_eq!(whole.bytes().len(), rest.bytes().len());
        assert_eq!(whole.around_ops(), rest.around_ops());
    }

    #[test]
    fn each_thread_makes_every_second_fsync() {
        let (_, rest) = without(&[], 2);
        let made = ["open", "left out", "write", "fdatasync", "stat", "left out"];
        assert_eq!(names(&rest, 0), made);
        assert_eq!(names(&rest, 1), ["left out", "fsync"]);
    }

    #[test]
    fn those_left_out_by_name_do_not_count() {
        let (_, rest) = without(&["fdatasync"], 2);
        let made = ["open", "left out", "write", "left out", "stat", "fsync"];
        assert_eq!(names(&rest, 0), made);
    }

    #[test]
    fn an_unknown_call_is_refused() {
        let left_out = LeftOut {
            names: vec!["fsink".into()],
            fsync_every: 1,
        };
        let refused = left_out.write_rest(&plan(DURABLE), &mut Vec::new());
        assert!(
            refused
                .expect_err("unknown")
                .to_string()
                .contains("'fsink'")
        );
    }
}
