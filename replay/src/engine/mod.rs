//! Executes a plan: one real process per recorded process, in the recorded partial order.

mod alarm;
pub mod args;
mod by_own_name;
mod call;
mod call_memory;
mod clock;
mod control;
mod copies;
pub mod cpus;
pub mod descendants;
mod fds;
mod futex;
mod gate;
mod life;
mod listing;
mod mapped;
mod opened;
pub mod outcomes;
pub mod pace;
pub mod passing;
mod paths;
mod plain;
mod raw;
mod realtime;
mod recorded_thread;
pub mod schedule;
mod shared_files;
mod special;
mod spin;
mod supervisor;
mod task;
mod turn;
mod verdict;
mod watchdog;

pub use supervisor::{Options, Summary, end_with_parent, open_sink, run};
