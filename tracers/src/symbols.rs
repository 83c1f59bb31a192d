//! Names of the kernel addresses seen in stacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};

/// "hexaddress function" lines for every address, by address. Addresses that
/// kallsyms hides (kptr_restrict) or does not know are left out.
pub fn resolve(addresses: impl Iterator<Item = u64>) -> Result<String> {
    let wanted: BTreeSet<u64> = addresses.filter(|a| *a != 0).collect();
    let file = std::fs::File::open("/proc/kallsyms").context("Failed to open /proc/kallsyms")?;
    let mut table: BTreeMap<u64, String> = BTreeMap::new();
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
            table.insert(address, name.to_owned());
        }
    }
    let mut text = String::new();
    for address in wanted {
        if let Some((_, name)) = table.range(..=address).next_back() {
            writeln!(text, "{address:x} {name}")?;
        }
    }
    Ok(text)
}
