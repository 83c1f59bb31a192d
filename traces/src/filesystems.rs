//! The table of filesystems (`filesystems.toml`), as far as the recorder needs it.

use std::sync::LazyLock;

use toml::{Table, Value};

const TEXT: &str = include_str!("../filesystems.toml");

/// One block of `filesystems.toml`, which explains each key.
#[derive(Debug, Clone)]
pub struct Filesystem {
    /// Type for `mount -t`.
    pub fstype: String,
    /// Prefixes of its tracepoints and functions.
    pub symbols: Vec<String>,
    /// Names of its kernel threads, with `{device}` and `{number}`; `*` at the end: a prefix.
    pub threads: Vec<String>,
    /// Work functions, and how to find the filesystem that each works for.
    pub workers: Vec<(String, String)>,
    /// It is mounted by its own driver, not by that of a newer filesystem.
    pub own_driver: bool,
}

static ALL: LazyLock<Vec<Filesystem>> = LazyLock::new(|| parse(TEXT));

/// Every filesystem, in order of its type.
pub fn all() -> &'static [Filesystem] {
    &ALL
}

/// The filesystem of that type.
pub fn by_type(fstype: &str) -> Option<&'static Filesystem> {
    ALL.iter().find(|filesystem| filesystem.fstype == fstype)
}

/// Ignores errors: the table is part of the program, and a test checks that it can be parsed.
fn parse(text: &str) -> Vec<Filesystem> {
    let tables: Table = text.parse().unwrap_or_default();
    let words = |value: Option<&Value>| -> Vec<String> {
        let list = value.and_then(Value::as_array);
        let words = list.into_iter().flatten().filter_map(Value::as_str);
        words.map(str::to_owned).collect()
    };
    let one = |fstype: &String| {
        let key = |name| find(&tables, fstype, name);
        let pairs = key("workers").and_then(Value::as_table);
        let pairs = pairs.into_iter().flatten();
        Filesystem {
            fstype: fstype.clone(),
            symbols: words(key("symbols")),
            threads: words(key("threads")),
            workers: pairs
                .filter_map(|(name, way)| Some((name.clone(), way.as_str()?.to_owned())))
                .collect(),
            own_driver: !tables[fstype]
                .as_table()
                .is_some_and(|own| own.contains_key("like")),
        }
    };
    tables.keys().map(one).collect()
}

/// Returns a key of a block, or of the block that its key `like` names.
fn find<'a>(tables: &'a Table, fstype: &str, key: &str) -> Option<&'a Value> {
    let own = tables.get(fstype)?.as_table()?;
    let like = || find(tables, own.get("like")?.as_str()?, key);
    own.get(key).or_else(like)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_well() {
        assert!(TEXT.parse::<Table>().is_ok());
        let ext3 = by_type("ext3").map(|f| (f.threads.clone(), f.workers.len(), f.own_driver));
        assert_eq!(ext3, Some((vec!["jbd2/{device}-*".to_owned()], 0, false)));
        assert_eq!(by_type("ext2").map(|f| f.threads.len()), Some(0));
        assert!(by_type("xfs").is_some_and(|f| f.workers.len() == 5 && f.own_driver));
    }
}
