//! Order of the operations: which comes after which, and which waits for which.

mod arrivals;
mod contest;
mod contest_turns;
pub mod depends;
pub mod edges;
mod edges_of_attributes;
mod edges_of_data;
mod edges_of_threads;
pub mod forks;
mod grants;
mod inode_reuse;
pub mod keys;
pub mod moments;
mod moved_directories;
pub mod one_order;
pub mod reasons;
mod refusals;
mod rivals;
mod search;
mod seen_sizes;
mod seen_xattrs;
mod subjects;
