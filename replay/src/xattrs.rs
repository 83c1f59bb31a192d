//! Extended attributes of files of the target: set as they must be, and compared.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ptr;

use crate::model::expect::tree::Thing;
use crate::model::state::xattrs::Xattr;
use crate::pattern::{self, Pattern};
use crate::sandbox::Confinement;
use crate::semantics::{self, XattrRole};

/// Largest list of names (XATTR_LIST_MAX) and largest value (XATTR_SIZE_MAX).
const LARGEST: usize = 65_536;

/// Sets the attributes that an object must have; returns how many were set, and how many were not:
/// those that are left out, and those that this filesystem does not take.
pub fn make(
    thing: &Thing,
    path: &CStr,
    pattern: &Pattern,
    confinement: &Confinement,
) -> (u64, u64) {
    let (mut set, mut skipped) = (0, 0);
    for (name, xattr) in &thing.xattrs {
        let value = value(name, xattr, thing.attributes.mode, pattern);
        match value.filter(|_| applies(name, confinement)) {
            Some(value) if store(path, name, &value) => set += 1,
            _ => skipped += 1,
        }
    }
    (set, skipped)
}

/// Returns whether an attribute is made here at all: `trusted` ones need root.
fn applies(name: &[u8], confinement: &Confinement) -> bool {
    confinement.owners || !name.starts_with(b"trusted.")
}

/// Returns the value of an attribute; `None` if it is left out.
fn value(name: &[u8], xattr: &Xattr, mode: u32, pattern: &Pattern) -> Option<Vec<u8>> {
    let length = xattr.length?;
    match semantics::xattr_role(name) {
        XattrRole::Plain => {
            let key = pattern::of_xattr(xattr.ino, name);
            pattern.bytes(key, 0, length as usize).map(<[u8]>::to_vec)
        }
        XattrRole::Acl => {
            let mut acl = vec![0; length as usize];
            fill_acl(&mut acl, mode).then_some(acl)
        }
        XattrRole::Left => None,
    }
}

fn store(path: &CStr, name: &[u8], value: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // SAFETY: both strings are NUL-terminated; the value is valid for its length.
    let done = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    done == 0
}

/// Makes an ACL of that many bytes which permits what the mode does; `false` if none is so long.
///
/// The ACL names users that do not exist, without any right: the recorded users are not known. The
/// mask keeps the kernel from turning an ACL without named users back into a mode.
pub fn fill_acl(acl: &mut [u8], mode: u32) -> bool {
    let n_entries = acl.len().saturating_sub(4) / 8;
    if n_entries < 3 || acl.len() % 8 != 4 {
        return false;
    }
    let named = (0..n_entries.saturating_sub(4)).map(|at| (USER, 0, NOBODYS + at as u32));
    let [user, group, other] = classes(mode);
    let mask = (n_entries > 3).then_some((MASK, group.1, u32::MAX));
    let whole = [user].into_iter().chain(named).chain([group]).chain(mask);
    acl[..4].copy_from_slice(&VERSION.to_le_bytes());
    for (room, (tag, permissions, id)) in acl[4..].chunks_exact_mut(8).zip(whole.chain([other])) {
        room[..2].copy_from_slice(&u16::to_le_bytes(tag));
        room[2..4].copy_from_slice(&u16::to_le_bytes(permissions));
        room[4..].copy_from_slice(&u32::to_le_bytes(id));
    }
    true
}

// linux/posix_acl_xattr.h
const VERSION: u32 = 2;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;
const NOBODYS: u32 = 0xf000_0000;

/// Tag, permissions, id.
type Entry = (u16, u16, u32);

fn classes(mode: u32) -> [Entry; 3] {
    let class = |tag, shift: u32| (tag, (mode >> shift & 7) as u16, u32::MAX);
    [class(USER_OBJ, 6), class(GROUP_OBJ, 3), class(OTHER, 0)]
}

/// Returns the first attribute that is not as it must be: name, expected and found.
pub fn differ(
    thing: &Thing,
    path: &CStr,
    pattern: &Pattern,
    confinement: &Confinement,
) -> Option<(Vec<u8>, String, String)> {
    let there = on_disk(path);
    let unforeseen = there
        .keys()
        .filter(|name| !thing.xattrs.contains_key(*name));
    let known = thing.xattrs.keys();
    let mut all = known
        .chain(unforeseen)
        .filter(|name| applies(name, confinement));
    all.find_map(|name| {
        let expected = thing.xattrs.get(name);
        let found = there.get(name).map(Vec::as_slice);
        let (wanted, got) = difference(name, expected, found, pattern)?;
        Some((name.clone(), wanted, got))
    })
}

fn difference(
    name: &[u8],
    expected: Option<&Xattr>,
    found: Option<&[u8]>,
    pattern: &Pattern,
) -> Option<(String, String)> {
    let role = semantics::xattr_role(name);
    // Some calls that set an ACL are not replayed.
    let unsure = role == XattrRole::Acl && expected.is_some_and(|xattr| xattr.mode_unknown);
    if role == XattrRole::Left || unsure {
        return None;
    }
    let size_of = |length: Option<usize>| match length {
        Some(length) => format!("{length} bytes"),
        None => "absent".into(),
    };
    let length = expected.and_then(|xattr| xattr.length);
    let (wanted, got) = (length.map(|length| length as usize), found.map(<[u8]>::len));
    if wanted != got {
        return Some((size_of(wanted), size_of(got)));
    }
    let (expected, found) = (expected?, found?);
    let right = role == XattrRole::Acl
        || value(name, expected, 0, pattern).is_none_or(|value| value == found);
    (!right).then(|| ("the pattern".into(), "other bytes".into()))
}

/// Returns the attributes of an object, by name.
fn on_disk(path: &CStr) -> BTreeMap<Vec<u8>, Vec<u8>> {
    // SAFETY: the path is NUL-terminated; without a buffer the kernel returns the length of the
    // names.
    let room = unsafe { libc::llistxattr(path.as_ptr(), ptr::null_mut(), 0) };
    if room <= 0 {
        return BTreeMap::new();
    }
    let mut names = vec![0_u8; LARGEST];
    // SAFETY: the kernel writes at most the buffer's length.
    let n = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(n.max(0) as usize);
    let mut found = BTreeMap::new();
    let mut value = vec![0_u8; LARGEST];
    let mut rest = names.as_slice();
    while let Ok(name) = CStr::from_bytes_until_nul(rest) {
        rest = &rest[name.to_bytes_with_nul().len()..];
        // SAFETY: strings are NUL-terminated; the kernel writes at most the buffer's length.
        let n = unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        if n >= 0 {
            found.insert(name.to_bytes().to_vec(), value[..n as usize].to_vec());
        }
    }
    found
}
