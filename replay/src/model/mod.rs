//! What the plan implies: the order of operations, the fixture and the final state.

mod contest;
pub mod descriptors;
pub mod edges;
pub mod evidence;
pub mod extents;
mod initial;
pub mod linear;
pub mod locks;
pub mod moments;
pub mod names;
pub mod needs;
pub mod objects;
mod rivals;
mod search;
pub mod sizes;
pub mod state;
pub mod world;

#[cfg(test)]
mod inferred;
#[cfg(test)]
mod tests;
