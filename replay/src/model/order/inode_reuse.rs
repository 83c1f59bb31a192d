//! Numbers of descriptors that are free again while the call that freed them still lasts: close
//! takes the number away first, and writes back or gives up locks after that.

use smallvec::SmallVec;
use spoolscope_traces::records::PlanOp;

use crate::model::state::world::World;
use crate::semantics::{self, Kind};

/// Returns the operations in flight that must have freed the number that this one was given.
pub fn freed_by(world: &World, ops: &[PlanOp], in_flight: &[u32], at: u32) -> SmallVec<[u32; 2]> {
    let op = &ops[at as usize];
    let process = world.leader(op.thread);
    let number = op.ret as i32;
    let given = semantics::makes_fd(op) && semantics::kind(op) != Kind::Dup2;
    if !given || in_flight.len() < 2 || !world.is_open(process, number) {
        return SmallVec::new();
    }
    let frees = |other: &u32| {
        let other = &ops[*other as usize];
        world.leader(other.thread) == process && world.closed_by(other).contains(&number)
    };
    in_flight.iter().copied().filter(frees).collect()
}

#[cfg(test)]
mod tests {
    use crate::model::tests::order_tests::{edges, order};

    /// Returns a script in which B's open gets the number that A's close frees.
    fn script(close: &str, open: &str) -> String {
        format!(
            "A 0-1 openat a flags=0 ino=7 = 3
             A 2-3 THREAD B
             A {close} close a fd=3 = 0
             B {open} openat b flags=0 ino=8 = 3
             B 90-95 fstat b fd=3 ino=8 = 0"
        )
    }

    #[test]
    fn a_number_that_is_given_again_was_free() {
        assert_eq!(order(&script("10-20", "30-40")).0, [0, 1, 2, 3, 4]);
        // The close ended while the open lasted.
        assert_eq!(order(&script("10-30", "20-40")).0, [0, 1, 2, 3, 4]);
        assert!(edges(&script("10-30", "20-40")).contains(&(3, 2)));
    }

    #[test]
    fn a_close_frees_its_number_before_it_ends() {
        assert_eq!(order(&script("10-60", "20-40")).0, [0, 1, 2, 3, 4]);
        assert!(edges(&script("10-60", "20-40")).contains(&(3, 2)));
    }
}
