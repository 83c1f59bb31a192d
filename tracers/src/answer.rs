//! Answers to the caller: one JSON line per event, apart from the command's own output.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spoolscope_traces::error_code;
use spoolscope_traces::text::shown_json;

use crate::cli::Options;

/// The answers file. It is opened while we may still open every path that the operator may.
static FILE: OnceLock<File> = OnceLock::new();

/// Open the answers file, if there is one, for all answers to come.
pub fn open(options: &Options) -> Result<()> {
    let Some(path) = &options.answers else {
        return Ok(());
    };
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("Failed to open {}", path.display()))?;
    FILE.get_or_init(|| file);
    Ok(())
}

/// Write one event to the answers file, or to stdout if there is none.
pub fn say(options: &Options, event: &Value) -> Result<()> {
    if FILE.get().is_none() {
        open(options)?;
    }
    match FILE.get() {
        Some(mut file) => writeln!(file, "{event}").context("Failed to write an answer"),
        None => {
            println!("{}", shown_json(&event.to_string()));
            Ok(())
        }
    }
}

/// Run a verb; its error is an event too if there is an answers file.
pub fn reported(options: &Options, verb: fn(&Options) -> Result<()>) -> Result<()> {
    let result = verb(options);
    if let (Err(error), Some(_)) = (&result, &options.answers) {
        let (code, message, remedy) = error_code::parts(error);
        say(
            options,
            &json!({
                "event": "error", "code": code.name(), "message": message, "remedy": remedy,
            }),
        )?;
        std::process::exit(code as i32);
    }
    result
}
