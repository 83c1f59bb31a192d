//! Memory that the calls of one task work in.

use foldhash::HashMap;

use crate::model::expect::listings::NameSet;

/// Memory that the arguments of one call point to.
#[derive(Debug)]
#[repr(C)]
pub struct Scratch {
    pub path: [u8; 8192],
    pub path2: [u8; 8192],
    pub stat: [u64; 64],
    pub flock: libc::flock,
    pub iov: libc::iovec,
    pub how: [u64; 3],
    pub offsets: [i64; 2],
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            path: [0; 8192],
            path2: [0; 8192],
            stat: [0; 64],
            flock: libc::flock {
                l_type: 0,
                l_whence: 0,
                l_start: 0,
                l_len: 0,
                l_pid: 0,
            },
            iov: libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            },
            how: [0; 3],
            offsets: [0; 2],
        }
    }
}

/// Listings that a task is reading.
#[derive(Debug, Default)]
pub struct Reader {
    /// Names so far, by place of the listing.
    pub names: HashMap<u32, NameSet>,
    /// Its own, as the threads of a process share the buffer of other reads.
    pub buffer: Vec<u8>,
}
