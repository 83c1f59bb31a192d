//! State that threads of a process share: descriptors, working directory, umask; and its end.

use spoolscope_traces::records::{NONE, PLAN_FORK, PlanOp};

use crate::model::order::edges::Edges;
use crate::model::order::keys::{Access, Key};
use crate::model::state::world::World;
use crate::semantics::{self, Kind};
use crate::touches::{self, Makes};

impl Edges<'_> {
    /// Orders an operation of a process with several threads by what these share.
    pub(in crate::model) fn add_shared(&mut self, at: u32, op: &PlanOp, world: &World) {
        let process = world.leader(op.thread);
        let mut access = Access {
            op: at,
            definite: false,
        };
        if semantics::kind(op) == Kind::Exit {
            // The last exit closes the descriptors of all threads.
            access.definite = true;
            let ends = world.processes().is_last(op.thread);
            return self.access(Key::Exit(process), ends, access);
        }
        let mut changed = world.closed_by(op);
        if semantics::makes_fd(op) && !changed.contains(&(op.ret as i32)) {
            changed.push(op.ret as i32);
        }
        let named = match semantics::kind(op) {
            Kind::CloseRange => [-1; 4],
            _ => [op.fd, op.fd2, op.dirfd, op.dirfd2],
        };
        for fd in named
            .into_iter()
            .filter(|fd| *fd >= 0 && !changed.contains(fd))
        {
            self.access(Key::Fd(process, fd), false, access);
        }
        if !changed.is_empty() {
            self.meet(at, Key::Table(process), true);
        } else if op.op == PLAN_FORK && copies(op, world) {
            self.meet(at, Key::Table(process), false);
        }
        // A call that gets a number shows that the number was free.
        access.definite = true;
        for fd in changed {
            self.access(Key::Fd(process, fd), true, access);
        }
        access.definite = false;
        let moves = matches!(semantics::kind(op), Kind::Chdir | Kind::Fchdir);
        if moves || semantics::uses_path(op) || op.op == PLAN_FORK {
            self.access(Key::Cwd(process), moves, access);
        }
        let masks = semantics::kind(op) == Kind::Umask;
        if masks || makes_object(op) || op.op == PLAN_FORK {
            self.access(Key::Umask(process), masks, access);
        }
    }
}

/// Returns whether a fork makes a process that is known: it has descriptors of its own.
fn copies(op: &PlanOp, world: &World) -> bool {
    op.arg != i64::from(NONE) && world.leader(op.arg as u32) != world.leader(op.thread)
}

/// Returns whether a call may make something whose mode depends on the umask.
fn makes_object(op: &PlanOp) -> bool {
    let touches = touches::of(op);
    let mut names = touches.iter().flatten();
    names.any(|touch| touch.makes == Makes::Object)
}

#[cfg(test)]
mod tests {
    use crate::model::tests::order_tests::{edges, order};

    #[test]
    fn what_a_thread_makes_waits_for_the_umask_of_its_process() {
        let script = "
            A 0-1 THREAD B = 0
            A 2-10 umask mode=77 = 18
            B 20-30 mkdir d mode=777 = 0
            A 40-50 umask mode=22 = 63
        ";
        assert_eq!(edges(script), [(2, 1), (3, 2)]);
        assert_eq!(edges(&script.replace("THREAD", "FORK")), []);
    }

    #[test]
    fn a_fork_waits_for_what_other_threads_opened_and_they_close_it_afterwards() {
        let script = "
            tree a ino=7
            A 0-1 THREAD B = 0
            B 2-10 openat a ino=7 omode=100644 = 3
            A 20-30 FORK C = 0
            B 40-50 close fd=3 = 0
            C 60-70 close fd=3 = 0
        ";
        assert_eq!(edges(script), [(2, 1), (3, 2)]);
        // Overlapping calls have no order, but follow what the other's thread did before.
        assert_eq!(edges(&script.replace("20-30", "5-45")), [(3, 0)]);
    }

    #[test]
    fn who_closes_does_not_wait_until_a_vfork_returns() {
        let script = "
            tree a ino=7
            A 0-1 THREAD B = 0
            B 2-10 openat a ino=7 omode=100644 = 3
            A 20-90 FORK C born=25 = 0
            B 40-50 close fd=3 = 0
            C 60-70 close fd=3 = 0
        ";
        assert_eq!(edges(script), [(2, 1), (3, 2)]);
        assert_eq!(order(script).0, [0, 1, 2, 3, 4]);
    }
}
