//! Executes a plan: one real process per recorded process, in the recorded partial order.

pub mod args;
mod call;
mod fds;
mod gate;
mod life;
mod mapped;
mod opened;
pub mod schedule;
pub mod shared;
mod supervisor;
mod task;
mod verdict;
mod watchdog;

pub use supervisor::{Options, open_sink, run};
