//! Model of what a plan implies: the order of operations, the fixture and the final state.

mod arrivals;
pub mod attributes;
mod contents;
mod contest;
mod data;
pub mod descriptors;
pub mod edges;
pub mod effects;
pub mod evidence;
pub mod extents;
pub mod forks;
mod grants;
mod held;
pub mod holdings;
pub mod holes;
mod initial;
pub mod linear;
pub mod listings;
pub mod locks;
pub mod moments;
mod moves;
pub mod names;
pub mod needs;
pub mod objects;
pub mod passed;
pub mod processes;
pub mod ranges;
pub mod reasons;
mod refusals;
mod reuse;
mod rivals;
mod search;
pub mod sizes;
pub mod state;
mod threads;
mod ways;
pub mod world;
pub mod xattrs;

#[cfg(test)]
mod attribute_tests;
#[cfg(test)]
mod contest_tests;
#[cfg(test)]
mod hole_tests;
#[cfg(test)]
mod inferred;
#[cfg(test)]
mod listing_tests;
#[cfg(test)]
mod lock_tests;
#[cfg(test)]
mod mode_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod xattr_tests;
