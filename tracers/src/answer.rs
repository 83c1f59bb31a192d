//! What the caller is told: one JSON line per event, apart from the command's own output.

use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cli::Options;

/// Writes one event to the answers file, or to stdout if there is none.
pub fn say(options: &Options, event: &Value) -> Result<()> {
    let Some(path) = &options.answers else {
        println!("{event}");
        return Ok(());
    };
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("Failed to open {}", path.display()))?;
    writeln!(file, "{event}").context("Failed to write an answer")
}

/// Runs a verb; its error is an event too if there is a file to say it in.
pub fn reported(options: &Options, verb: fn(&Options) -> Result<()>) -> Result<()> {
    let result = verb(options);
    if let (Err(error), Some(_)) = (&result, &options.answers) {
        say(
            options,
            &json!({"event": "error", "message": format!("{error:#}")}),
        )?;
        std::process::exit(1);
    }
    result
}
