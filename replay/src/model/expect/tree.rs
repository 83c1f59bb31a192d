//! The tree before the first and after the last operation.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use serde::{Deserialize, Serialize};
use spoolscope_traces::records::PlanEntry;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::state::extents::Extents;
use crate::model::state::holes::Holes;
use crate::model::state::inode_attributes::Attributes;
use crate::model::state::listed::is_listed;
use crate::model::state::names::parent_of;
use crate::model::state::objects::{Object, Predicted};
use crate::model::state::slots::Slot;
use crate::model::state::world::World;
use crate::model::state::xattrs::{Named, When};
use crate::plan::Plan;

/// One object of a tree; several names may lead to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thing {
    /// Key of the data pattern.
    pub ino: u64,
    pub attributes: Attributes,
    pub target: Vec<u8>,
    pub xattrs: Named,
    pub written: Extents,
    /// Bytes on the disk, at most, without holes.
    pub takes: i64,
    pub blurred: bool,
    pub unsized_: bool,
    /// All names in this directory are known.
    pub listed: bool,
    pub nlink: u32,
}

impl Thing {
    /// Returns whether the fixture makes a regular file of it, also if its type is unknown.
    pub fn is_file(&self) -> bool {
        matches!(self.attributes.mode & libc::S_IFMT, libc::S_IFREG | 0)
    }
}

/// Names in order, parents first, each with an index into the things.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tree {
    pub things: Vec<Thing>,
    pub names: BTreeMap<Vec<u8>, usize>,
    /// The tree has a directory of that name.
    pub lost_and_found: bool,
}

impl Tree {
    /// Builds the fixture: the tree that must exist before the first operation.
    pub fn initial(plan: &Plan, world: &World) -> Self {
        let mut tree = Self::build(plan, world, world.slots().at_start(), When::Start);
        tree.cut_off();
        tree
    }

    /// Removes names without a place in this tree: a trace with lost calls may imply some.
    fn cut_off(&mut self) {
        let mut directories: HashSet<Vec<u8>> = HashSet::new();
        let things = &self.things;
        self.names.retain(|name, thing| {
            let placed = parent_of(name).is_none_or(|parent| directories.contains(parent));
            let mode = things[*thing].attributes.mode;
            if placed && mode & libc::S_IFMT == libc::S_IFDIR {
                directories.insert(name.clone());
            }
            placed
        });
    }

    /// Builds the tree that must exist after the last operation.
    pub fn expected(plan: &Plan, world: &World) -> Self {
        Self::build(plan, world, world.slots().now(), When::End)
    }

    fn build(plan: &Plan, world: &World, slots: &[Slot], when: When) -> Self {
        let mut tree = Self::default();
        let mut known: HashMap<u32, usize> = HashMap::new();
        let mut by_ino: HashMap<u64, usize> = HashMap::new();
        for (path, slot) in slots.iter().enumerate() {
            let Slot::Present(index) = slot else {
                continue;
            };
            let object = world.object(*index);
            let thing = *known.entry(*index).or_insert_with(|| {
                let thing = from_object(plan, object, when);
                let xattrs = world.xattrs_of(*index, when);
                let seen = world.first_entry(*index).is_some_and(is_listed);
                tree.push(Thing {
                    xattrs,
                    listed: object.is_directory() && (!object.was_there() || seen),
                    ..thing
                })
            });
            if object.was_there() && object.ino() != 0 {
                by_ino.insert(object.ino(), thing);
            }
            tree.add(world.names().bytes(path as u32), thing);
        }
        for entry in world.untouched() {
            // Directories have one name each, whatever a trace shows.
            let linked = entry.ino != 0 && entry.mode & libc::S_IFMT != libc::S_IFDIR;
            let thing = match by_ino.get(&entry.ino).filter(|_| linked) {
                Some(thing) => *thing,
                None => tree.push(Thing {
                    xattrs: world.xattrs_of_entry(entry),
                    ..from_entry(plan, entry)
                }),
            };
            if linked {
                by_ino.insert(entry.ino, thing);
            }
            tree.add(world.names().bytes(entry.path), thing);
        }
        tree.add_parents(world, slots);
        tree
    }

    fn push(&mut self, thing: Thing) -> usize {
        self.things.push(thing);
        self.things.len() - 1
    }

    fn add(&mut self, name: &[u8], thing: usize) {
        // mkfs.ext* makes it, with what is in it; it is no part of a tree that is compared.
        if name == b"lost+found" {
            self.lost_and_found = true;
            return;
        }
        if self.names.insert(name.to_vec(), thing).is_none() {
            self.things[thing].nlink += 1;
        }
    }

    /// Adds directories that only names below them imply, unless they are known to be absent.
    fn add_parents(&mut self, world: &World, slots: &[Slot]) {
        let (mut missing, mut seen) = (BTreeSet::new(), HashSet::new());
        let reached = world.slots().reached();
        let reached = reached.map(|path| world.names().bytes(path));
        for name in self.names.keys().map(Vec::as_slice).chain(reached) {
            let mut above = parent_of(name);
            // The directories above one that was seen were seen, too.
            while let Some(parent) = above.filter(|parent| seen.insert(*parent)) {
                let slot = world
                    .names()
                    .find(parent)
                    .and_then(|path| slots.get(path as usize));
                if slot != Some(&Slot::Absent) && !self.names.contains_key(parent) {
                    missing.insert(parent.to_vec());
                }
                above = parent_of(parent);
            }
        }
        for name in missing {
            let attributes = Attributes {
                mode: libc::S_IFDIR | 0o755,
                ..Attributes::default()
            };
            let thing = self.push(plain(0, attributes));
            self.add(&name, thing);
        }
    }

    /// Bytes of all extended attributes.
    pub fn xattr_bytes(&self) -> i64 {
        let all = self.things.iter().flat_map(|thing| thing.xattrs.values());
        all.map(|xattr| i64::from(xattr.length.unwrap_or(0))).sum()
    }

    /// Bytes of all regular files, without their holes.
    pub fn bytes(&self) -> i64 {
        let regular = self.things.iter().filter(|thing| thing.is_file());
        regular.fold(0, |sum, thing| sum.saturating_add(thing.takes))
    }
}

fn plain(ino: u64, attributes: Attributes) -> Thing {
    Thing {
        ino,
        attributes,
        target: Vec::new(),
        xattrs: Named::new(),
        written: Holes::default().data(attributes.size),
        takes: attributes.size,
        blurred: false,
        unsized_: false,
        listed: false,
        nlink: 0,
    }
}

/// Target of a symlink whose target is not known: it leads nowhere.
const NOWHERE: &[u8] = b".spoolscope-unknown";

fn target(plan: &Plan, target: u32, attributes: &Attributes) -> Vec<u8> {
    let text = plan.string(target);
    let link = attributes.mode & libc::S_IFMT == libc::S_IFLNK;
    // No symlink is empty.
    if link && text.is_empty() {
        NOWHERE.to_vec()
    } else {
        text.to_vec()
    }
}

fn from_object(plan: &Plan, object: &Object, when: When) -> Thing {
    let (attributes, written, takes) = match object.at_start().filter(|_| when == When::Start) {
        Some(start) => (start.attributes, start.data(), start.data().bytes()),
        None => {
            let written = object.written().clone();
            (object.attributes(), written, object.data_bytes())
        }
    };
    Thing {
        target: target(plan, object.target(), &attributes),
        takes,
        written,
        blurred: object.predicted() != Predicted::Bytes,
        unsized_: object.predicted() == Predicted::Nothing,
        ..plain(object.ino(), attributes)
    }
}

fn from_entry(plan: &Plan, entry: &PlanEntry) -> Thing {
    let attributes = Attributes::of_entry(entry);
    let written = Holes::of(entry.holes).data(attributes.size);
    Thing {
        target: target(plan, entry.target, &attributes),
        takes: written.bytes(),
        written,
        listed: is_listed(entry),
        ..plain(entry.ino, attributes)
    }
}
