//! Executes a plan: one real process per recorded process, in the recorded partial order.

mod alarm;
pub mod args;
mod call;
mod copies;
pub mod cpus;
mod fds;
mod gate;
mod life;
mod listing;
mod mapped;
mod opened;
pub mod outcomes;
pub mod pace;
pub mod passing;
mod paths;
mod realtime;
pub mod schedule;
pub mod shared;
mod special;
mod spin;
mod supervisor;
mod task;
mod turn;
mod verdict;
mod watchdog;

pub use supervisor::{Options, Summary, end_with_parent, open_sink, run};
