//! Calls on extended attributes: their effects, and which attributes are replayed.

use spoolscope_traces::calls::{self, ids_of};
use spoolscope_traces::records::PlanOp;

use crate::semantics::{Kind, kind};

/// The action of a call on one extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrCall {
    Get,
    Set,
    Remove,
}

const NOT_FOLLOWING: [u16; 4] = ids_of(["lgetxattr", "lsetxattr", "lremovexattr", "llistxattr"]);

pub fn xattr_call(op: &PlanOp) -> Option<XattrCall> {
    match kind(op) {
        Kind::GetXattr => Some(XattrCall::Get),
        Kind::SetXattr if !calls::takes(usize::from(op.op), "acl") => Some(XattrCall::Remove),
        Kind::SetXattr => Some(XattrCall::Set),
        _ => None,
    }
}

/// Bytes of an access ACL that holds no more than a mode; the kernel turns it into one.
pub const MODE_AS_ACL: i64 = 28;
/// Bytes of the largest ACL that is replayed; `nobody` replaces the ids in it, which are unknown.
const LONGEST_ACL: i64 = 512;

/// Returns the permissions that an access ACL sets, if known; the ids in it are not recorded.
pub fn mode_by_acl(op: &PlanOp) -> Option<u32> {
    let known = op.mode & libc::S_IFMT != 0 && (MODE_AS_ACL..=LONGEST_ACL).contains(&op.size);
    (known && xattr_call(op) == Some(XattrCall::Set)).then_some(op.mode & 0o777)
}

/// Returns whether a call on an extended attribute works on what a symlink leads to.
pub fn follows_links(op: &PlanOp) -> bool {
    !NOT_FOLLOWING.contains(&op.op)
}

/// The way in which an extended attribute is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrRole {
    /// Its value means nothing to the kernel: any value of the recorded length will do.
    Plain,
    /// The access ACL: the kernel takes only one that makes sense.
    Acl,
    /// Never made: its effect on this machine is not known.
    Left,
}

/// Returns the role of an attribute. Security labels and file capabilities have effects on this
/// machine, a default ACL on every file made below it; filesystems read some trusted attributes.
pub fn xattr_role(name: &[u8]) -> XattrRole {
    const READ_BY_FILESYSTEMS: [&[u8]; 2] = [b"trusted.SGI_", b"trusted.overlay."];
    let begins = |start: &&[u8]| name.starts_with(start);
    match () {
        () if name == b"system.posix_acl_access" => XattrRole::Acl,
        () if READ_BY_FILESYSTEMS.iter().any(begins) => XattrRole::Left,
        () if [b"user.".as_slice(), b"trusted."].iter().any(begins) => XattrRole::Plain,
        () => XattrRole::Left,
    }
}

const NAMESPACES: [&[u8]; 4] = [b"user.", b"security.", b"trusted.", b"system."];

/// Returns what is missing before the name of an extended attribute: a pseudonym of an older trace
/// has lost its namespace.
pub fn missing_namespace(name: &[u8]) -> &'static [u8] {
    match NAMESPACES.iter().any(|space| name.starts_with(space)) {
        true => b"",
        false => NAMESPACES[0],
    }
}

/// Returns whether an extended attribute was refused because its name is in no namespace: no
/// filesystem has it.
pub fn has_no_namespace(op: &PlanOp, name: &[u8]) -> bool {
    op.ret == -i64::from(libc::EOPNOTSUPP) && !missing_namespace(name).is_empty()
}

/// Returns the whole name of an extended attribute.
pub fn whole_xattr(name: &[u8]) -> Vec<u8> {
    [missing_namespace(name), name].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::id_of;

    #[test]
    fn only_a_name_that_was_refused_is_in_no_namespace() {
        let lacks = |name: &[u8], error: i32| {
            let op = PlanOp {
                op: id_of("setxattr"),
                ret: -i64::from(error),
                ..PlanOp::default()
            };
            has_no_namespace(&op, name)
        };
        assert!(lacks(b"bogus.a", libc::EOPNOTSUPP));
        assert!(!lacks(b"user.a", libc::EOPNOTSUPP));
        // A pseudonym of an older trace.
        assert!(!lacks(b"bogus", 0) && !lacks(b"bogus", libc::ENOSPC));
    }
}
