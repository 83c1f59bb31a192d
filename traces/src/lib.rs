//! Layouts and files shared by the recorder and the replayer.

pub mod calls;
pub mod disk;
pub mod ending_signals;
pub mod error_code;
pub mod filesystems;
pub mod linux;
pub mod records;
pub mod segment;
pub mod text;
