//! Mounts below the spools when a recording begins. From there on the converter follows the calls
//! that mount and unmount; the kernel side leaves out calls by names that lead to such a mount.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use libbpf_rs::{MapCore, MapMut};
use serde_json::{Value, json};

use crate::aliases;
use crate::host::Spool;
use crate::mounts::Mounts;
use crate::ways::{self, Way, Ways};

/// Mount points below the spools.
#[derive(Debug)]
pub struct Below {
    own: u32,
    /// By mount namespace: the mount points, each with the directory of a spool that it shows (None
    /// if it shows none).
    at_start: BTreeMap<u32, BTreeMap<PathBuf, Option<PathBuf>>>,
    /// Keys of the names that lead off a spool in the recorder's own view.
    out: BTreeMap<PathBuf, Vec<Vec<u8>>>,
}

impl Below {
    /// Return the mount points in the recorder's own namespace.
    pub fn own(own: u32, spools: &[Spool], ways: &Ways, mounts: &Mounts) -> Below {
        let others = ways.out.keys().map(|place| (place.clone(), None));
        let shown = spools.iter().flat_map(|s| aliases::mounted(s, mounts));
        let shown = shown.filter(|(place, _)| is_below(spools, place));
        let all = others.chain(shown.map(|(place, source)| (place, Some(source))));
        Below {
            own,
            at_start: [(own, all.collect())].into(),
            out: ways.out.clone(),
        }
    }

    /// Add the mount points of another namespace; `here` translates its names into the recorder's.
    pub fn add(
        &mut self,
        namespace: u32,
        ways: &ways::Names,
        here: impl Fn(&Path) -> Option<Vec<u8>>,
    ) {
        let out = ways.iter().filter(|(_, way)| **way == Way::Out);
        let named = out.filter_map(|(place, _)| here(place));
        let places = named.map(|place| (PathBuf::from(OsString::from_vec(place)), None));
        self.at_start.entry(namespace).or_default().extend(places);
    }

    /// Remove the names where nothing is mounted any more: they lead to the spool again.
    pub fn take_away(&mut self, spools: &[Spool], map: &MapMut<'_>) -> Result<()> {
        let still = ways::own_names(spools, &Mounts::own()?)?;
        self.out.retain(|place, keys| {
            let stays = still.get(place) == Some(&Way::Out);
            for key in keys.iter().filter(|_| !stays) {
                let _ = map.delete(key); // a name that was cut has no entry
            }
            stays
        });
        Ok(())
    }

    /// Return the form for meta.json.
    pub fn as_json(&self) -> Value {
        let pair = |(place, source): (&PathBuf, &Option<PathBuf>)| json!([place, source]);
        let all = self.at_start.iter().map(|(namespace, places)| {
            let places: Vec<Value> = places.iter().map(pair).collect();
            json!({"mount_ns": namespace, "own": *namespace == self.own, "places": places})
        });
        all.collect()
    }
}

fn is_below(spools: &[Spool], place: &Path) -> bool {
    let below = |spool: &Spool| place != spool.mount && place.starts_with(&spool.mount);
    spools.iter().any(below)
}
