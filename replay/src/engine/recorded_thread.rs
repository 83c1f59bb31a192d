//! Executes the stream of one recorded thread: waits, makes each call, and notes its outcome.

use spoolscope_traces::records::{
    Outcome, PlanOp, REASON_BAD_FD, REASON_NO_ORDER, REASON_NONE, VERDICT_DIVERGED, VERDICT_SAME,
    VERDICT_SKIPPED,
};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{PoisonError, RwLockReadGuard};

use crate::engine::clock::now_ns;
use crate::engine::fds::Open;
use crate::engine::futex::{futex_wait, futex_wake};
use crate::engine::gate::state;
use crate::engine::pace::Standing;
use crate::engine::raw::written;
use crate::engine::schedule::Follower;
use crate::engine::task::{Process, Task};
use crate::engine::verdict::{Refusal, Verdict};
use crate::engine::{call, life, listing, realtime};
use crate::semantics::{self, Kind, OpenFlags};

impl Task {
    /// Runs the stream to its end; the caller then ends the thread.
    pub fn run(&mut self) {
        let schedule = &self.context.schedule;
        life::settle(self);
        let start = self.wait_for_start();
        if now_ns() < start {
            self.gate().sleep_until(start, &schedule.control().spinning);
        }
        let mut exited = false;
        let n_ops = schedule.n_ops(self.thread);
        let mut followers = schedule.followers(self.thread);
        for position in 0..n_ops {
            let slot = schedule.slot(self.thread, position);
            let op = &schedule.plan.ops()[schedule.op_at(slot) as usize];
            exited = semantics::kind(op) == Kind::Exit;
            let outcome = self.step(op, slot, start);
            schedule.outcomes.store(slot, outcome);
            self.advance(slot, position + 1, &mut followers);
        }
        self.finish(exited);
    }

    /// Marks the operation of a slot as done, and wakes only threads that wait for it.
    fn advance(&self, slot: usize, finished: u32, followers: &mut &'static [Follower]) {
        let schedule = &self.context.schedule;
        self.gate().progress.store(finished, SeqCst);
        while let Some((follower, rest)) = followers.split_first()
            && follower.after as usize == slot
        {
            *followers = rest;
            let gate = &schedule.gates[follower.thread as usize];
            gate.wake_from(self.thread, finished);
        }
    }

    /// Reports this task as ready, waits for the start of the replay and returns its time.
    fn wait_for_start(&self) -> i64 {
        let control = self.context.schedule.control();
        control.ready.fetch_add(1, SeqCst);
        futex_wake(&control.ready);
        while control.begun.load(SeqCst) == 0 {
            futex_wait(&control.begun, 0, 1_000_000_000);
            life::leave_if_orphaned(self.context.engine_pid);
        }
        control.start_ns.load(SeqCst)
    }

    /// Waits for time and order, makes the call, and judges its result.
    fn step(&mut self, op: &PlanOp, slot: usize, start: i64) -> Outcome {
        let schedule = &self.context.schedule;
        self.keep_priority();
        let due = self.standing.due_ns(schedule.pace, op);
        if due > self.standing.ended_ns {
            let spinning = &schedule.control().spinning;
            self.gate().sleep_until(start + due, spinning);
        }
        self.slot = slot;
        let kind = semantics::kind(op);
        let mut ready = self.wait_for_others(slot).max(due);
        if matches!(kind, Kind::Fcntl | Kind::Flock) {
            ready = ready.max(self.line_up(slot));
        }
        let at = schedule.op_at(slot);
        // Time spent here is not charged to the call.
        let whole = self.keep_descriptors_whole(op, at, kind);
        let births = (kind == Kind::Fork).then(|| written(&self.process.births));
        let now = now_ns();
        self.gate().enter_call(now);
        let issue = now - start;
        // The life of a forked task begins at this time.
        self.standing.ended_ns = issue;
        let (ret, (verdict, reason)) = match schedule.noop && kind != Kind::Fork {
            true => (op.ret, (VERDICT_SAME, REASON_NONE)),
            false => self.act(op, at, kind),
        };
        let end = now_ns() - start;
        drop((whole, births));
        self.gate().enter(state::RUNNING);
        self.standing = Standing {
            ended_ns: end,
            recorded_ns: op.end_ns,
        };
        let reason = if std::mem::take(&mut self.gave_up) {
            REASON_NO_ORDER
        } else {
            reason
        };
        Outcome {
            issue_ns: issue,
            end_ns: end,
            ready_ns: ready,
            ret,
            tid: self.tid,
            verdict,
            reason,
            pad: 0,
        }
    }

    /// Takes real-time priority, if that was asked for, and gives it back when CPUs are busy.
    fn keep_priority(&mut self) {
        let schedule = &self.context.schedule;
        let wanted = schedule.realtime && schedule.control().spinning.is_allowed();
        if wanted != self.realtime {
            self.realtime = wanted;
            // A task that is refused goes on without it.
            realtime::set(wanted);
        }
    }

    /// Returns when the last call ended that had to be waited for; 0 if there was none.
    fn wait_for_others(&mut self, slot: usize) -> i64 {
        let schedule = &self.context.schedule;
        let mut ended = 0;
        for (thread, finished) in schedule.edges(slot) {
            let other = &schedule.gates[*thread as usize];
            if other.progress.load(SeqCst) >= *finished {
                continue;
            }
            if self.gate().wait_for(other, *thread, *finished) {
                ended = ended.max(
                    schedule
                        .outcomes
                        .ended_ns(schedule.slot(*thread, *finished - 1)),
                );
            } else {
                self.gave_up = true;
            }
        }
        ended
    }

    fn act(&mut self, op: &PlanOp, at: u32, kind: Kind) -> (i64, Verdict) {
        self.take_passed(at);
        let done = match kind {
            Kind::Fork => life::fork(self, op, Self::run),
            Kind::Exec => self.exec(),
            Kind::Exit => self.exit(),
            Kind::LeftOut => Ok((op.ret, (VERDICT_SAME, REASON_NONE))),
            Kind::Getdents => match self.context.listings.of(at) {
                Some(listing) => listing::read(self, op, at, listing),
                None => listing::read_unknown(self, op),
            },
            _ => call::make(self, op, kind),
        };
        if kind == Kind::Open
            && let Some(open) = self.process.fds.get(op.ret as i32)
        {
            self.context.passing.send(at, open.real);
        }
        match done {
            Ok(result) => result,
            Err(reason) => (-i64::from(libc::ENOSYS), (refused(reason), reason)),
        }
    }

    /// Returns the lock that keeps forks out until a call that changes descriptors is noted. An
    /// open may sleep until a lease is given up; with leases it takes no lock, or forks would wait.
    fn keep_descriptors_whole(
        &self,
        op: &PlanOp,
        at: u32,
        kind: Kind,
    ) -> Option<RwLockReadGuard<'static, ()>> {
        let process: &'static Process = self.process;
        if !process.threaded.load(Relaxed) {
            return None;
        }
        let changes = match kind {
            Kind::Open => !self.context.schedule.leases,
            Kind::Close | Kind::CloseRange | Kind::Dup2 | Kind::Watch | Kind::Exec => true,
            Kind::Fork => false,
            _ => semantics::makes_fd(op),
        };
        let takes = changes || self.context.passing.hands_over(at);
        takes.then(|| {
            process
                .births
                .read()
                .unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// Binds the open file that another task passes, if the recorded process got one from another.
    fn take_passed(&self, at: u32) {
        if let Some((pass, real)) = self.context.passing.receive(at) {
            let opened = &self.context.schedule.plan.ops()[pass.opened as usize];
            let open = Open {
                path: opened.path,
                append: OpenFlags::of(opened).appends(),
                ..Open::new(real)
            };
            self.process.fds.bind(pass.fd, open);
        }
    }

    /// Replays an exec: closes descriptors marked close-on-exec; there is nothing to execute.
    fn exec(&mut self) -> Result<(i64, Verdict), Refusal> {
        self.process.fds.close_all(|open| open.cloexec);
        Ok((0, (VERDICT_SAME, REASON_NONE)))
    }

    /// Closes files now: a task that waits for the end of this process relies on its locks being
    /// free.
    fn exit(&self) -> Result<(i64, Verdict), Refusal> {
        self.leave();
        Ok((0, (VERDICT_SAME, REASON_NONE)))
    }

    /// Leaves the process; its last thread closes its files.
    fn leave(&self) {
        if self.process.alive.fetch_sub(1, SeqCst) == 1 {
            self.process.fds.close_all(|_| true);
        }
    }

    /// A thread that outlived the recording keeps its descriptors and locks until all are done.
    ///
    /// Without an order it closes them: it may be here before threads that had these locks earlier.
    fn finish(&self, exited: bool) {
        let control = self.context.schedule.control();
        if self.context.schedule.unordered && !exited {
            self.leave();
        }
        self.gate().enter(state::DONE);
        control.finished.fetch_add(1, SeqCst);
        futex_wake(&control.finished);
        while !exited && control.over.load(Relaxed) == 0 {
            futex_wait(&control.over, 0, 1_000_000_000);
            life::leave_if_orphaned(self.context.engine_pid);
        }
    }
}

/// Returns the verdict of a refusal: a missing descriptor follows from an earlier divergence,
/// everything else is deliberate.
fn refused(reason: Refusal) -> u8 {
    match reason {
        REASON_BAD_FD => VERDICT_DIVERGED,
        _ => VERDICT_SKIPPED,
    }
}
