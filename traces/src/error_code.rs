//! Failures of the native programs that the caller can act on: a code, a message and a remedy.
//!
//! `spoolscope.traces.native_failures` knows the same codes; `test_native_failures.py` compares them.

use std::fmt;
use std::io::{self, ErrorKind};

use serde_json::{Value, json};

use crate::text::{complain, shown_json};

/// With the value `json`, a failure is one line of JSON on stderr, for a program that reads it.
const FORM: &str = "SPOOLSCOPE_FAILURES";

/// The remedy for a full disk where a failure names none.
const FULL: &str = "free space there, or use another disk";

/// The kind of a failure; the number is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Any other failure.
    Failed = 1,
    /// An argument names what is not there or cannot be.
    Usage = 2,
    /// The target has less room than the replay needs.
    TooSmall = 4,
    /// The plan is too large with so many copies of its users.
    TooManyUsers = 5,
    /// The target holds something already.
    NotEmpty = 6,
    /// The caller lacks a right.
    NotPermitted = 7,
    /// The running kernel lacks what is needed.
    NoKernel = 8,
}

impl Code {
    /// All codes with their names.
    pub const ALL: [(Code, &'static str); 7] = [
        (Code::Failed, "failed"),
        (Code::Usage, "usage"),
        (Code::TooSmall, "too_small"),
        (Code::TooManyUsers, "too_many_users"),
        (Code::NotEmpty, "not_empty"),
        (Code::NotPermitted, "not_permitted"),
        (Code::NoKernel, "no_kernel"),
    ];

    /// The name of the code, which does not change.
    pub fn name(self) -> &'static str {
        let named = Self::ALL.iter().find(|(code, _)| *code == self);
        named.map_or("failed", |(_, name)| name)
    }
}

/// A failure with its code; as text "message: remedy".
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
    remedy: String,
}

impl Failure {
    /// Makes a failure; without a remedy the caller has one by the code.
    pub fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Reads what `line` wrote; `None` if it is anything else.
    pub fn of_line(line: &str) -> Option<Self> {
        let said: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| said[key].as_str();
        let code = Code::ALL
            .iter()
            .find(|(_, name)| Some(*name) == text("code"))?;
        Some(Self::new(code.0, text("message")?, text("remedy")?))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self.remedy.as_str() {
            "" => formatter.write_str(&self.message),
            remedy => write!(formatter, "{}: {remedy}", self.message),
        }
    }
}

impl std::error::Error for Failure {}

/// Returns code, message and remedy of an error; one of another type has the code `Failed`.
pub fn parts(error: &anyhow::Error) -> (Code, String, String) {
    let (mut code, mut remedy, mut words) = (Code::Failed, String::new(), Vec::new());
    for cause in error.chain() {
        match cause.downcast_ref::<Failure>() {
            Some(failure) => {
                code = failure.code;
                remedy.clone_from(&failure.remedy);
                words.push(failure.message.clone());
            }
            None => {
                let system = cause.downcast_ref::<io::Error>();
                if remedy.is_empty() && system.is_some_and(|e| e.kind() == ErrorKind::StorageFull) {
                    remedy.push_str(FULL);
                }
                words.push(cause.to_string());
            }
        }
    }
    (code, words.join(": "), remedy)
}

/// Returns an error as one line of JSON, for the program that called this one.
pub fn line(error: &anyhow::Error) -> String {
    let (code, message, remedy) = parts(error);
    let line = json!({"code": code.name(), "message": message, "remedy": remedy});
    shown_json(&line.to_string())
}

/// Prints an error on stderr; returns the exit status.
pub fn report(program: &str, error: &anyhow::Error) -> u8 {
    if std::env::var_os(FORM).is_some_and(|form| form == "json") {
        complain(&line(error));
    } else {
        complain(&format!("{program}: error: {error:#}"));
    }
    parts(error).0 as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn a_failure_keeps_its_code_below_a_context() {
        let failure = Failure::new(Code::NotEmpty, "target /t is not empty", "empty it");
        assert_eq!(failure.to_string(), "target /t is not empty: empty it");
        let error = Err::<(), _>(failure)
            .context("Failed to begin")
            .unwrap_err();
        let words = "Failed to begin: target /t is not empty".to_owned();
        assert_eq!(
            parts(&error),
            (Code::NotEmpty, words, "empty it".to_owned())
        );
        let other = parts(&anyhow!("the disk is gone"));
        assert_eq!(
            other,
            (Code::Failed, "the disk is gone".to_owned(), String::new())
        );
    }

    #[test]
    fn a_failure_goes_from_one_process_to_another() {
        let failure = Failure::new(Code::TooSmall, "no room for \u{1b}", "give more");
        let error = Err::<(), _>(failure).context("fill").unwrap_err();
        let read = Failure::of_line(&line(&error)).map(anyhow::Error::new);
        assert_eq!(read.map(|error| parts(&error)), Some(parts(&error)));
        for other in [
            "",
            "x",
            "{}",
            r#"{"code": "later", "message": "", "remedy": ""}"#,
        ] {
            assert!(Failure::of_line(other).is_none(), "{other}");
        }
    }

    #[test]
    fn a_full_disk_has_a_remedy() {
        let full = Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC));
        let error = full.context("cannot write /t/plan").unwrap_err();
        let (code, message, remedy) = parts(&error);
        assert!(message.starts_with("cannot write /t/plan: No space"));
        assert_eq!((code, remedy.as_str()), (Code::Failed, FULL));
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        for (code, name) in Code::ALL {
            assert_eq!(code.name(), name);
        }
    }
}
