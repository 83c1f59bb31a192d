//! A plan in memory, and the file it becomes.

use foldhash::HashMap;
use spoolscope_traces::records::{
    NONE, PLAN_MAGIC, PlanEntry, PlanFd, PlanHeader, PlanOp, PlanThread, PlanXattr, VERSION,
    as_bytes,
};
use std::io::{self, Write};
use std::slice;

use crate::plan::Plan;
use crate::sorted_ops::SortedOps;

/// Sections of a plan begin at multiples of this many bytes.
const ALIGNED: usize = 8;
const _: () = assert!(size_of::<PlanOp>() % ALIGNED == 0);

/// The sections of a plan under construction.
#[derive(Debug, Default)]
pub struct Draft {
    pub threads: Vec<PlanThread>,
    pub ops: SortedOps,
    pub entries: Vec<PlanEntry>,
    pub fds: Vec<PlanFd>,
    pub xattrs: Vec<PlanXattr>,
    pub duration_ns: i64,
    strings: Vec<Vec<u8>>,
    index: HashMap<Vec<u8>, u32>,
    /// By string of the plan that this one is made of, its index here, NONE as long as it has none.
    taken: Vec<u32>,
}

impl Draft {
    /// Returns the index of a string, which is added if it is new.
    pub fn string(&mut self, text: &[u8]) -> u32 {
        if let Some(known) = self.index.get(text) {
            return *known;
        }
        let new = self.strings.len() as u32;
        self.strings.push(text.to_vec());
        self.index.insert(text.to_vec(), new);
        new
    }

    /// As `string`, for an index into the strings of the plan that this one is made of.
    pub fn taken(&mut self, plan: &Plan, string: u32) -> u32 {
        if string == NONE {
            return NONE;
        }
        let at = string as usize;
        if self.taken.len() <= at {
            self.taken.resize(plan.n_strings() as usize, NONE);
        }
        if self.taken[at] == NONE {
            self.taken[at] = self.string(plan.string(string));
        }
        self.taken[at]
    }

    /// Returns an operation of the plan that this one is made of, with its strings in this one.
    pub fn renamed(&mut self, plan: &Plan, op: &PlanOp) -> PlanOp {
        PlanOp {
            path: self.taken(plan, op.path),
            path2: self.taken(plan, op.path2),
            given: self.taken(plan, op.given),
            given2: self.taken(plan, op.given2),
            ..*op
        }
    }

    /// Returns the bytes of all files at the start, without holes. The sum of a hostile plan may
    /// overflow: it saturates.
    pub fn tree_bytes(&self) -> i64 {
        let sizes = self.entries.iter().map(|entry| entry.size - entry.holes);
        sizes.fold(0, i64::saturating_add)
    }

    /// Writes the plan file.
    pub fn write(self, file: &mut impl Write) -> io::Result<()> {
        let mut index = vec![0_u64];
        for string in &self.strings {
            index.push(index[index.len() - 1] + string.len() as u64);
        }
        let string_bytes = index[index.len() - 1] as usize;
        file.write_all(as_bytes(&[self.header(string_bytes)]))?;
        put(as_bytes(&self.threads), file)?;
        for op in self.ops.in_order() {
            file.write_all(as_bytes(slice::from_ref(&op)))?;
        }
        put(as_bytes(&self.entries), file)?;
        put(as_bytes(&self.fds), file)?;
        put(as_bytes(&self.xattrs), file)?;
        put(as_bytes(&index), file)?;
        for string in &self.strings {
            file.write_all(string)?;
        }
        file.write_all(&[0; ALIGNED][..filling(string_bytes)])?;
        file.flush()
    }

    fn header(&self, string_bytes: usize) -> PlanHeader {
        let mut end = size_of::<PlanHeader>();
        let mut place = |length: usize| {
            let place = end as u64;
            end = (end + length).next_multiple_of(ALIGNED);
            place
        };
        PlanHeader {
            magic: *PLAN_MAGIC,
            version: VERSION,
            n_threads: self.threads.len() as u32,
            n_ops: self.ops.len() as u64,
            n_entries: self.entries.len() as u64,
            n_fds: self.fds.len() as u64,
            n_xattrs: self.xattrs.len() as u64,
            n_strings: self.strings.len() as u64,
            string_bytes: string_bytes as u64,
            duration_ns: self.duration_ns,
            threads_at: place(size_of_val(&*self.threads)),
            ops_at: place(self.ops.len() * size_of::<PlanOp>()),
            entries_at: place(size_of_val(&*self.entries)),
            fds_at: place(size_of_val(&*self.fds)),
            xattrs_at: place(size_of_val(&*self.xattrs)),
            string_index_at: place((self.strings.len() + 1) * size_of::<u64>()),
            string_bytes_at: place(string_bytes),
        }
    }

    /// Returns the plan file, in memory.
    #[cfg(test)]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).expect("memory");
        bytes
    }
}

fn put(section: &[u8], file: &mut impl Write) -> io::Result<()> {
    file.write_all(section)?;
    file.write_all(&[0; ALIGNED][..filling(section.len())])
}

/// Returns how many bytes are missing to the place of the next section.
fn filling(length: usize) -> usize {
    length.next_multiple_of(ALIGNED) - length
}

/// Returns an operation of no recorded call, at the very start.
pub fn pseudo(thread: u32, op: u16) -> PlanOp {
    PlanOp {
        offset: -1,
        size: -1,
        obj_size: -1,
        call: u64::MAX,
        thread,
        path: NONE,
        path2: NONE,
        given: NONE,
        given2: NONE,
        fd: -1,
        fd2: -1,
        dirfd: -1,
        dirfd2: -1,
        op,
        ..PlanOp::default()
    }
}
