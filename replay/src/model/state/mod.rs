//! The spool at one moment of the recording, as the calls until then must have left it.

mod at_start;
mod contents;
pub mod descriptors;
pub mod effects;
pub mod evidence;
pub mod extents;
pub mod first_state;
pub mod holes;
pub mod inode_attributes;
pub mod listed;
pub mod locks;
mod moves;
pub mod names;
pub mod objects;
pub mod passed_on;
pub mod population;
pub mod processes;
pub mod recorded_tree;
pub mod required_names;
pub mod sizes;
pub mod slots;
pub mod space;
mod ways;
pub mod world;
pub mod xattr_calls;
pub mod xattrs;
