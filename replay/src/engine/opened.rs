//! Files that were open in a process when the recording began, opened again.

use crate::engine::fds::Open;
use crate::engine::shared_files::open;
use crate::engine::task::Task;
use crate::semantics::{self, OpenFlags};

/// Opens the files that were open in the process of a task when the recording began.
pub fn restore(task: &Task) {
    let plan = task.context.schedule.plan;
    for fd in plan.fds().iter().filter(|fd| fd.thread == task.thread) {
        let shared = task.context.shared_files.take(fd.file);
        let real = shared.unwrap_or_else(|| open(plan, fd, &task.context.confinement));
        if real < 0 {
            continue;
        }
        let flags = OpenFlags::new(fd.flags);
        let open = Open {
            path: fd.path,
            cloexec: flags.closes_on_exec(),
            append: flags.appends(),
            special: semantics::is_special(fd.mode),
            ..Open::new(real)
        };
        task.process.fds.bind(fd.fd, open);
    }
    task.context.shared_files.close();
}
