//! Expectations: trees before and after, the names that listings show, and open files.

pub mod listings;
pub mod open_files;
pub mod tree;
