//! Refusals that the caller can act on: the exit status shows the cause, the message the reason.

use std::fmt;

/// The kind of error; the number is the exit status, as `engine.py` knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// The target has less room than the replay needs.
    TooSmall = 4,
    /// The plan is too large with so many copies of its users.
    TooManyUsers = 5,
    /// The target holds something already.
    NotEmpty = 6,
}

/// A refusal with its cause.
#[derive(Debug)]
pub struct Refusal {
    pub cause: Cause,
    message: String,
}

impl Refusal {
    pub fn new(cause: Cause, message: String) -> Self {
        Self { cause, message }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// Returns the exit status for an error: 1 where no cause is named.
pub fn status(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<Refusal>()
        .map_or(1, |refusal| refusal.cause as u8)
}
