//! Model of what a plan implies: the order of operations, the fixture and the final state.

pub mod expect;
pub mod order;
pub mod state;
#[cfg(test)]
mod tests;
