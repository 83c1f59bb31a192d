//! Orders and states of small plans that are written by hand.

mod attribute_tests;
mod contest_tests;
mod handmade_filesystem;
mod hole_tests;
mod listing_tests;
mod lock_tests;
mod mode_tests;
pub mod order_tests;
mod xattr_tests;
