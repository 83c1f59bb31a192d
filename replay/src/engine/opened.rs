//! Files that were open in a process when the recording began, opened again.

use crate::engine::fds::Open;
use crate::engine::shared_files::open;
use crate::engine::task::Task;
use crate::semantics;

/// Opens the files that were open in the process of a task when the recording began.
pub fn restore(task: &Task) {
    let plan = task.context.schedule.plan;
    for fd in plan.fds().iter().filter(|fd| fd.thread == task.thread) {
        let shared = task.context.shared_files.take(fd.file);
        let real = shared.unwrap_or_else(|| open(plan, fd, &task.context.confinement));
        if real < 0 {
            continue;
        }
        let flags = fd.flags as i32;
        let open = Open {
            path: fd.path,
            cloexec: flags & libc::O_CLOEXEC != 0,
            append: flags & libc::O_APPEND != 0,
            special: semantics::is_special(fd.mode),
            ..Open::new(real)
        };
        task.process.fds.bind(fd.fd, open);
    }
    task.context.shared_files.close();
}
