//! Extended attributes that objects have at start and at the end, as calls and the snapshot show.

use spoolscope_traces::records::{NONE, PlanEntry, PlanOp};

use crate::model::state::world::World;
use crate::model::state::xattrs::{Named, When, Xattr};
use crate::plan::Plan;
use crate::semantics::{self, XattrCall};

impl World<'_> {
    /// Collects the snapshot's attributes: any of an object's names may list them, or several.
    pub(in crate::model) fn show_xattrs(&mut self, plan: &Plan) {
        for xattr in plan.xattrs() {
            let Some(entry) = self.recorded.at(xattr.path) else {
                continue;
            };
            let listed = (xattr.name, xattr.length);
            if let Some(entry) = self.entry_that_stands_for(entry) {
                let of_entry = self.xattrs.shown.entry(entry).or_default();
                if !of_entry.contains(&listed) {
                    of_entry.push(listed);
                }
            }
        }
    }

    fn entry_that_stands_for(&self, entry: &PlanEntry) -> Option<u32> {
        let by_ino = self.recorded.index_of_ino(entry.ino);
        by_ino.or_else(|| self.recorded.index_at(entry.path))
    }

    fn shown_xattrs(&self, object: u32) -> &[(u32, u32)] {
        let known = self.object(object);
        if !known.was_there() {
            return &[];
        }
        let by_ino = self.recorded.index_of_ino(known.ino());
        let nameless = |entry: &u32| self.recorded.entry(*entry).ino == 0;
        let by_name = || {
            let first = self.slots.first_name(object)?;
            self.recorded.index_at(first).filter(nameless)
        };
        let entry = by_ino.or_else(by_name);
        entry
            .and_then(|entry| self.xattrs.shown.get(&entry))
            .map_or(&[], Vec::as_slice)
    }

    /// Learns from a call that read, set or removed an attribute, and applies its effect.
    pub fn note_xattr(&mut self, op: &PlanOp) {
        let Some((object, _)) = self.xattr_of(op) else {
            return;
        };
        let found = self.found_by(op);
        let shown = self.shown_xattrs(object).iter();
        let shown = shown.copied().find(|(name, _)| *name == op.path2);
        let lives = self.xattrs.met.entry(object).or_default();
        let life = lives.entry(op.path2).or_default();
        if life.first.is_none() && life.last.is_none() {
            life.first = found.map(|found| match found {
                Found::Absent => None,
                Found::Length(length) => Some(length),
                Found::AtLeast(least) => Some(shown.map_or(least, |(_, length)| length)),
            });
        }
        if let Some(length) = left_by(op) {
            let by_acl = semantics::mode_by_acl(op).is_some();
            life.last = Some(Xattr {
                length,
                ino: op.ino,
                mode_unknown: semantics::xattr_call(op) == Some(XattrCall::Set) && !by_acl,
            });
        }
    }

    /// Returns the object and the name of the attribute that a call is about.
    pub fn xattr_of(&self, op: &PlanOp) -> Option<(u32, u32)> {
        semantics::xattr_call(op).filter(|_| op.path2 != NONE)?;
        let object = self.target_of(op)?;
        // The object that a symlink leads to is not recorded.
        let elsewhere = self.object(object).is_symlink() && semantics::follows_links(op);
        (!elsewhere).then_some((object, op.path2))
    }

    /// Returns the present length of an attribute, or that it is absent; `None` if no call shows it.
    pub fn xattr_now(&self, (object, name): (u32, u32)) -> Option<Option<u32>> {
        let life = self.xattrs.met.get(&object)?.get(&name)?;
        life.last.map(|last| last.length).or(life.first)
    }

    /// Returns what a call shows of its attribute.
    pub fn found_by(&self, op: &PlanOp) -> Option<Found> {
        let call = semantics::xattr_call(op)?;
        evidence(op, call).filter(|_| self.may_see(op))
    }

    /// Returns whether a call sees an attribute: trusted ones exist only for root, see xattr(7).
    fn may_see(&self, op: &PlanOp) -> bool {
        let trusted = self.names.bytes(op.path2).starts_with(b"trusted.");
        !trusted || self.threads[op.thread as usize].uid == 0
    }

    pub fn xattrs_of(&self, object: u32, when: When) -> Named {
        let known = self.object(object);
        let at_start = |length| Xattr {
            length: Some(length),
            ino: known.ino(),
            mode_unknown: false,
        };
        let shown = self.shown_xattrs(object).iter();
        let mut found: Named = shown
            .map(|(name, length)| (self.whole_name(*name), at_start(*length)))
            .collect();
        for (name, life) in self.xattrs.met.get(&object).into_iter().flatten() {
            if let Some(length) = life.first.filter(|_| known.was_there()) {
                match length {
                    Some(length) => drop(found.insert(self.whole_name(*name), at_start(length))),
                    None => drop(found.remove(&self.whole_name(*name))),
                }
            }
            if let Some(last) = life.last.filter(|_| when == When::End) {
                found.insert(self.whole_name(*name), last);
            }
        }
        found
    }

    /// Returns the attributes of an entry that no call touched.
    pub fn xattrs_of_entry(&self, entry: &PlanEntry) -> Named {
        let stands = self.entry_that_stands_for(entry);
        let shown = stands.and_then(|entry| self.xattrs.shown.get(&entry));
        let listed = shown.into_iter().flatten().map(|(name, length)| {
            let xattr = Xattr {
                length: Some(*length),
                ino: entry.ino,
                mode_unknown: false,
            };
            (self.whole_name(*name), xattr)
        });
        listed.collect()
    }

    fn whole_name(&self, name: u32) -> Vec<u8> {
        semantics::whole_xattr(self.names.bytes(name))
    }
}

/// The state of an attribute just before a call, as its result shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Absent,
    Length(u32),
    /// At least so many bytes.
    AtLeast(u32),
}

impl Found {
    /// Returns whether an attribute of this length, or without one an absent attribute, is what a
    /// call found.
    pub fn fits(self, now: Option<u32>) -> bool {
        match (self, now) {
            (Self::Absent, now) => now.is_none(),
            (Self::Length(length), now) => now == Some(length),
            (Self::AtLeast(least), now) => now.is_some_and(|length| length >= least),
        }
    }
}

/// Returns the length of its attribute after a call that set or removed it: `None` inside if absent.
pub fn left_by(op: &PlanOp) -> Option<Option<u32>> {
    let call = semantics::xattr_call(op).filter(|call| op.ret >= 0 && *call != XattrCall::Get)?;
    // An ACL that holds no more than a mode becomes that mode in the kernel.
    let is_mode = semantics::mode_by_acl(op).is_some() && op.size == semantics::MODE_AS_ACL;
    let there = call == XattrCall::Set && !is_mode;
    Some(there.then_some(op.size.max(0) as u32))
}

fn evidence(op: &PlanOp, call: XattrCall) -> Option<Found> {
    let there = Some(Found::AtLeast(0));
    match (call, -op.ret as i32) {
        (_, libc::ENODATA) => Some(Found::Absent),
        (XattrCall::Get, libc::ERANGE) => Some(Found::AtLeast(op.size.max(0) as u32 + 1)),
        (XattrCall::Get, _) if op.ret >= 0 => Some(Found::Length(op.ret as u32)),
        (XattrCall::Set, libc::EEXIST) => there,
        (XattrCall::Set, _) if op.ret >= 0 => match op.flags as i32 {
            libc::XATTR_CREATE => Some(Found::Absent),
            libc::XATTR_REPLACE => there,
            _ => None,
        },
        (XattrCall::Remove, _) if op.ret >= 0 => there,
        _ => None,
    }
}
