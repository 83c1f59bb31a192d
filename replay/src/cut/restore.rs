//! State of processes at the cut, restored by descriptors and operations before all others.

use spoolscope_traces::records::{BASE_ROOT, NONE, PlanEntry, PlanFd, PlanOp};

use crate::assemble::pseudo;
use crate::cut::Cutter;
use crate::model::expect::open_files::Process;
use crate::model::state::descriptors::Descriptor;
use crate::model::state::locks::{Hold, Owner};
use crate::model::state::slots::Slot;
use crate::model::state::xattrs::When;
use crate::semantics::id_of;

impl Cutter<'_> {
    /// Takes what living processes have: descriptors, then operations that restore the rest.
    pub(super) fn take_processes(&mut self) {
        for (leader, thread) in self.roots.clone() {
            let Some(process) = self.holdings.processes.get(&leader) else {
                continue;
            };
            let fds = self.world.descriptors().of(leader);
            self.take_fds(thread, &fds);
            self.map(thread, process);
            self.lock(thread, leader, &fds);
            self.watch(thread, process);
        }
        for (object, (path, thread)) in &self.nameless {
            let call = match self.world.object(*object).is_directory() {
                true => "rmdir",
                false => "unlink",
            };
            self.draft.ops.push(PlanOp {
                path: *path,
                base: BASE_ROOT,
                ..pseudo(*thread, id_of(call))
            });
        }
        self.draft.ops.extend(self.forks.drain(..));
    }

    /// Returns the name of an object; one that has lost its own gets another until it is open.
    fn name_of(&mut self, object: u32, thread: u32) -> u32 {
        if let Some(name) = self.names.get(&object) {
            return *name;
        }
        if let Some((name, _)) = self.nameless.get(&object) {
            return *name;
        }
        let name = format!(".spoolscope-deleted.{}", self.nameless.len());
        let name = self.draft.string(name.as_bytes());
        self.nameless.insert(object, (name, thread));
        self.take_xattrs(name, &self.world.xattrs_of(object, When::End));
        let known = self.world.object(object);
        let size = match known.is_directory() {
            true => 0,
            false => known.size(),
        };
        self.draft.entries.push(PlanEntry {
            ino: known.ino(),
            size,
            holes: (size - known.data_bytes()).max(0),
            path: name,
            target: NONE,
            mode: known.mode(),
            uid: known.attributes().uid,
            gid: known.attributes().gid,
            ..PlanEntry::default()
        });
        name
    }

    fn take_fds(&mut self, thread: u32, fds: &[(i32, Descriptor)]) {
        for (fd, known) in fds {
            let (Some(file), Some(object)) = (self.holdings.file(*known), known.object) else {
                self.skipped += 1;
                continue;
            };
            let flags = file.flags.again().with_close_on_exec(known.cloexec);
            let listed = !file.listed.is_empty();
            let path = self.name_of(object, thread);
            self.draft.fds.push(PlanFd {
                pos: if listed { 0 } else { file.pos },
                thread,
                fd: *fd,
                flags: flags.bits() as u32,
                path,
                file: known.file.unwrap_or(NONE),
                ..PlanFd::default()
            });
            // All descriptors of a stream have one position: it is read to its place once.
            if known.file.is_some_and(|file| !self.listed.insert(file)) {
                continue;
            }
            for at in &file.listed {
                let op = self.plan.ops()[*at as usize];
                let again = PlanOp {
                    thread,
                    fd: *fd,
                    ..self.again(&op)
                };
                self.draft.ops.push(again);
            }
        }
    }

    /// Returns a recorded call to be made once more at the start; it does not count as recorded.
    fn again(&mut self, op: &PlanOp) -> PlanOp {
        PlanOp {
            start_ns: 0,
            end_ns: 0,
            call: u64::MAX,
            ..self.draft.renamed(self.plan, op)
        }
    }

    /// Opens, maps and closes files before locks are taken, since a close would give these up.
    fn map(&mut self, thread: u32, process: &Process) {
        let most = self.world.descriptors().highest();
        let spare = most.map_or(3, |fd| fd + 1).min(crate::plan::MAX_FD);
        for part in &process.mappings {
            let op = self.plan.ops()[part.op as usize];
            let path = self.name_of(part.object, thread);
            let writes =
                op.flags as i32 & libc::MAP_SHARED != 0 && op.mode as i32 & libc::PROT_WRITE != 0;
            let shared = PlanOp {
                ino: op.ino,
                path,
                obj_mode: op.obj_mode,
                ..pseudo(thread, 0)
            };
            let open = PlanOp {
                op: id_of("openat"),
                base: BASE_ROOT,
                ret: i64::from(spare),
                flags: if writes { libc::O_RDWR as u32 } else { 0 },
                ..shared
            };
            let map = PlanOp {
                op: id_of("mmap"),
                fd: spare,
                mode: op.mode,
                flags: op.flags,
                arg: part.start,
                ret: part.start,
                size: part.len,
                offset: part.offset,
                ..shared
            };
            let close = PlanOp {
                op: id_of("close"),
                fd: spare,
                ..shared
            };
            self.draft.ops.extend([open, map, close]);
        }
    }

    /// Takes locks through descriptors of their files that allow it.
    fn lock(&mut self, thread: u32, process: u32, fds: &[(i32, Descriptor)]) {
        let mut held = self.locks.all_of(Owner::Process(process));
        held.sort_by_key(|hold| {
            let of_file = |(_, known): &&(i32, Descriptor)| hold.is_of(*known, self.world);
            fds.iter().find(of_file).map(|(_, known)| known.object)
        });
        for hold in held {
            self.take_lock(thread, fds, &hold, libc::F_SETLK);
        }
        for own in fds {
            let file = own.1.file.map(Owner::OpenFile);
            for hold in file.map_or(Vec::new(), |file| self.locks.all_of(file)) {
                self.take_lock(thread, &[*own], &hold, libc::F_OFD_SETLK);
            }
        }
    }

    fn take_lock(&mut self, thread: u32, fds: &[(i32, Descriptor)], hold: &Hold, cmd: i32) {
        let may_lock = |known: Descriptor| match self.holdings.file(known) {
            Some(file) if hold.exclusive => file.flags.writes(),
            Some(file) => file.flags.reads(),
            None => false,
        };
        let fits = |(_, known): &&(i32, Descriptor)| {
            hold.is_of(*known, self.world) && (hold.is_flock() || may_lock(*known))
        };
        let found = fds.iter().find(fits);
        let Some((fd, Some(object))) = found.map(|(fd, known)| (*fd, known.object)) else {
            self.skipped += 1;
            return;
        };
        let path = self.name_of(object, thread);
        let known = self.world.object(object);
        let op = PlanOp {
            fd,
            ino: known.ino(),
            obj_mode: known.mode() as u16,
            path,
            ..pseudo(
                thread,
                id_of(if hold.is_flock() { "flock" } else { "fcntl" }),
            )
        };
        let ((start, end), exclusive) = (hold.bytes, hold.exclusive);
        self.draft.ops.push(match (hold.is_flock(), exclusive) {
            (true, true) => PlanOp {
                cmd: libc::LOCK_EX | libc::LOCK_NB,
                ..op
            },
            (true, false) => PlanOp {
                cmd: libc::LOCK_SH | libc::LOCK_NB,
                ..op
            },
            (false, _) => PlanOp {
                cmd,
                lock_type: [libc::F_RDLCK, libc::F_WRLCK][usize::from(exclusive)] as u8,
                offset: start,
                size: if end == i64::MAX { 0 } else { end - start },
                ..op
            },
        });
    }

    /// Sets watches on objects that still have their name.
    fn watch(&mut self, thread: u32, process: &Process) {
        for at in &process.watches {
            let op = self.plan.ops()[*at as usize];
            if self.world.slot(op.path) == Slot::Absent {
                self.skipped += 1;
                continue;
            }
            let again = PlanOp {
                thread,
                ..self.again(&op)
            };
            self.draft.ops.push(again);
        }
    }
}
