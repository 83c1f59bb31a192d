//! Names and addresses of kernel functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};

/// Call `each` with the address and name of every kernel function that kallsyms shows; with
/// kptr_restrict it shows none.
fn functions(mut each: impl FnMut(u64, &str)) -> Result<()> {
    let file = std::fs::File::open("/proc/kallsyms").context("Failed to open /proc/kallsyms")?;
    for line in BufReader::new(file).lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
            each(address, name);
        }
    }
    Ok(())
}

/// Return true for a linker's mark, which stands at the address of a section's first function: in
/// Debian's 6.1 the first of `.sched.text` is `io_schedule_timeout`.
fn marks_section(name: &str) -> bool {
    name.starts_with("__") && (name.ends_with("_start") || name.ends_with("_end"))
}

/// The functions of this kernel by address, as far as kallsyms shows them.
#[derive(Debug)]
pub struct Functions(BTreeMap<u64, String>);

impl Functions {
    /// Read the functions: some 10 MB on most kernels.
    pub fn read() -> Result<Functions> {
        let mut table: BTreeMap<u64, String> = BTreeMap::new();
        functions(|address, name| {
            if !(marks_section(name) && table.contains_key(&address)) {
                table.insert(address, name.to_owned());
            }
        })?;
        Ok(Functions(table))
    }

    /// Return the function in which an address lies.
    pub fn at(&self, address: u64) -> Option<&str> {
        let before = self.0.range(..=address).next_back();
        before
            .filter(|_| address != 0)
            .map(|(_, name)| name.as_str())
    }
}

/// Return "hexaddress function" lines for every address, by address. Addresses that kallsyms hides
/// or does not know are left out.
pub fn resolve(addresses: impl Iterator<Item = u64>) -> Result<String> {
    let wanted: BTreeSet<u64> = addresses.collect();
    let functions = Functions::read()?;
    let mut text = String::new();
    for address in wanted {
        if let Some(name) = functions.at(address) {
            writeln!(text, "{address:x} {name}")?;
        }
    }
    Ok(text)
}

/// Return the addresses of the functions with these names; the compiler's suffixes (".isra.0") are
/// ignored.
pub fn addresses_of(names: &[&str]) -> Result<Vec<(u64, usize)>> {
    let mut found = Vec::new();
    functions(|address, name| {
        let plain = name.split('.').next().unwrap_or(name);
        if let Some(at) = names.iter().position(|wanted| *wanted == plain) {
            found.push((address, at));
        }
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_of_the_linker_is_no_function() {
        assert!(marks_section("__sched_text_start"));
        assert!(marks_section("__cpuidle_text_end"));
        assert!(!marks_section("io_schedule_timeout"));
        assert!(!marks_section("blk_mq_queue_tag_busy_iter_start"));
    }
}
