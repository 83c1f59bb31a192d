//! The plan file: mapped, checked once, then trusted.

use anyhow::{Context, Result, ensure};
use memmap2::Mmap;
use spoolscope_traces::records::{
    NONE, PLAN_FORK, PLAN_LEFT_OUT, PLAN_MAGIC, PlanEntry, PlanFd, PlanHeader, PlanOp, PlanThread,
    PlanXattr, VERSION, from_bytes,
};
use std::borrow::Cow;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use crate::columns::Columns;
use crate::memory::shared;
use crate::semantics::{self, Kind};

/// Flag of the threads of a plan that lacks calls on purpose, beside those of spsc_task_flags.
pub const OF_PART: u32 = 1 << 16;

/// Largest descriptor number a plan may use; recorded servers stay far below it.
pub const MAX_FD: i32 = 65_535;

/// Largest value of an extended attribute (XATTR_SIZE_MAX).
pub const MAX_XATTR: u32 = 65_536;

/// Largest error number of the kernel (MAX_ERRNO).
const MAX_ERRNO: i64 = 4095;

/// Most bytes that one call moves (MAX_RW_COUNT).
const MAX_COUNT: i64 = 0x7fff_f000;

/// Place of the bytes of a plan.
#[derive(Debug)]
enum Bytes {
    Mapped(Mmap),
    Shared(&'static [u8]),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// A plan. Sections are views into its file, so memory does not grow with it.
#[derive(Debug)]
pub struct Plan {
    bytes: Bytes,
    header: PlanHeader,
    columns: Columns,
}

impl Plan {
    /// Maps a plan and checks every reference in it; a plan is untrusted input.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        // SAFETY: the mapping is private and read-only; the file belongs to this replay.
        let map = unsafe { Mmap::map(&file) }?;
        let mut plan =
            Self::from_map(map).with_context(|| format!("{} is no plan", path.display()))?;
        plan.columns = plan.check()?;
        Ok(plan)
    }

    /// Moves a short plan to the memory that tasks have in huge pages.
    pub fn shared(mut self) -> Result<Self> {
        if self.bytes.len() <= shared::SHORT {
            self.bytes = Bytes::Shared(shared::copy(&self.bytes)?);
        }
        Ok(self)
    }

    fn from_map(map: Mmap) -> Result<Self> {
        let head = map.get(..size_of::<PlanHeader>()).context("too short")?;
        let header: PlanHeader = from_bytes(head).context("misaligned")?[0];
        ensure!(&header.magic == PLAN_MAGIC, "wrong magic");
        ensure!(
            header.version == VERSION,
            "version {} is not known",
            header.version
        );
        let plan = Self {
            bytes: Bytes::Mapped(map),
            header,
            columns: Columns::default(),
        };
        plan.section::<PlanThread>(header.threads_at, u64::from(header.n_threads))?;
        plan.section::<PlanOp>(header.ops_at, header.n_ops)?;
        plan.section::<PlanEntry>(header.entries_at, header.n_entries)?;
        plan.section::<PlanFd>(header.fds_at, header.n_fds)?;
        plan.section::<PlanXattr>(header.xattrs_at, header.n_xattrs)?;
        plan.section::<u64>(header.string_index_at, header.n_strings.saturating_add(1))?;
        plan.section::<u8>(header.string_bytes_at, header.string_bytes)?;
        Ok(plan)
    }

    fn section<T: bytemuck::Pod>(&self, at: u64, count: u64) -> Result<&[T]> {
        let bytes = count
            .checked_mul(size_of::<T>() as u64)
            .context("section too long")?;
        let end = at.checked_add(bytes).context("section too long")?;
        let part = self
            .bytes
            .get(at as usize..end as usize)
            .context("section past the end")?;
        from_bytes(part).context("section misaligned")
    }

    fn known<T: bytemuck::Pod>(&self, at: u64, count: u64) -> &[T] {
        self.section(at, count).unwrap_or(&[])
    }

    pub fn threads(&self) -> &[PlanThread] {
        self.known(self.header.threads_at, u64::from(self.header.n_threads))
    }

    /// Returns whether no recorded call is left out on purpose.
    pub fn is_whole(&self) -> bool {
        let of_part = self.threads().iter().any(|t| t.flags & OF_PART != 0);
        !of_part && self.ops().iter().all(|op| op.op != PLAN_LEFT_OUT)
    }

    /// Returns the operations, sorted by their recorded start.
    pub fn ops(&self) -> &[PlanOp] {
        self.known(self.header.ops_at, self.header.n_ops)
    }

    /// Returns the operations of some kinds, each with its index.
    pub fn of_kind(&self, wanted: impl Fn(Kind) -> bool) -> impl Iterator<Item = (u32, &PlanOp)> {
        let found = self
            .columns
            .kinds
            .iter()
            .zip(0..)
            .filter(move |(kind, _)| wanted(**kind));
        found.map(|(_, at)| (at, &self.ops()[at as usize]))
    }

    /// Returns the thread of every operation.
    pub fn actors(&self) -> &[u32] {
        &self.columns.threads
    }

    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the place of every operation among those of its thread.
    pub fn positions(&self) -> Vec<u32> {
        self.columns.positions(self.threads().len())
    }

    pub fn entries(&self) -> &[PlanEntry] {
        self.known(self.header.entries_at, self.header.n_entries)
    }

    pub fn fds(&self) -> &[PlanFd] {
        self.known(self.header.fds_at, self.header.n_fds)
    }

    pub fn xattrs(&self) -> &[PlanXattr] {
        self.known(self.header.xattrs_at, self.header.n_xattrs)
    }

    pub fn n_strings(&self) -> u32 {
        self.header.n_strings as u32
    }

    /// Returns the bytes of a string; empty for `NONE`.
    pub fn string(&self, index: u32) -> &[u8] {
        if index == NONE {
            return &[];
        }
        let offsets: &[u64] = self.known(self.header.string_index_at, self.header.n_strings + 1);
        let at = index as usize;
        let bytes: &[u8] = self.known(self.header.string_bytes_at, self.header.string_bytes);
        &bytes[offsets[at] as usize..offsets[at + 1] as usize]
    }

    /// Returns the bytes of the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of the file before the operations, and those after.
    pub fn around_ops(&self) -> (&[u8], &[u8]) {
        let (before, rest) = self.bytes.split_at(self.header.ops_at as usize);
        (before, &rest[size_of_val(self.ops())..])
    }

    /// Returns length and checksum of the file, which identify the plan.
    pub fn digest(&self) -> (u64, u32) {
        (self.bytes.len() as u64, crc32fast::hash(&self.bytes))
    }

    pub fn duration_ns(&self) -> i64 {
        self.header.duration_ns
    }

    fn check(&self) -> Result<Columns> {
        ensure!(self.header.n_ops < u64::from(NONE), "too many operations");
        ensure!(self.header.n_strings < u64::from(NONE), "too many strings");
        self.check_strings()?;
        let columns = self.check_ops()?;
        for entry in self.entries() {
            ensure!(entry.path != NONE, "tree entry without a name");
            self.check_path(entry.path).context("tree entry")?;
            self.check_string(entry.target)?;
            ensure!(entry.size >= 0, "tree entry with a negative size");
            ensure!(
                (0..=entry.size).contains(&entry.holes),
                "tree entry with more holes than bytes"
            );
        }
        for fd in self.fds() {
            self.check_path(fd.path).context("open file")?;
            ensure!(
                (0..=MAX_FD).contains(&fd.fd),
                "descriptor {} is out of range",
                fd.fd
            );
            ensure!(
                fd.thread < self.header.n_threads,
                "open file of an unknown thread"
            );
        }
        for xattr in self.xattrs() {
            ensure!(xattr.path != NONE, "extended attribute of no file");
            self.check_path(xattr.path).context("extended attribute")?;
            self.check_string(xattr.name)?;
            ensure!(
                xattr.length <= MAX_XATTR,
                "extended attribute of {} bytes",
                xattr.length
            );
        }
        for thread in self.threads() {
            self.check_path(thread.cwd).context("working directory")?;
        }
        Ok(columns)
    }

    fn check_ops(&self) -> Result<Columns> {
        let mut columns = Columns::with_room(self.ops().len());
        let mut known = vec![false; self.n_strings() as usize];
        let (mut life, mut last_ns) = (Life::new(self.threads()), 0);
        for (at, op) in self.ops().iter().enumerate() {
            let checked = self.check_op(op, &mut known);
            checked
                .and_then(|()| life.check(op))
                .with_context(|| format!("operation {at}"))?;
            ensure!(op.start_ns >= last_ns, "operations are not sorted");
            last_ns = op.start_ns;
            columns.push(op);
        }
        life.end()?;
        Ok(columns)
    }

    fn check_strings(&self) -> Result<()> {
        let offsets: &[u64] = self.known(self.header.string_index_at, self.header.n_strings + 1);
        ensure!(offsets.is_sorted(), "string offsets are not sorted");
        ensure!(
            offsets.last() <= Some(&self.header.string_bytes),
            "string past the end"
        );
        for index in 0..self.n_strings() {
            ensure!(
                !self.string(index).contains(&0),
                "string {index} contains NUL"
            );
        }
        Ok(())
    }

    fn check_string(&self, index: u32) -> Result<()> {
        ensure!(
            index == NONE || index < self.n_strings(),
            "unknown string {index}"
        );
        Ok(())
    }

    /// Checks that a path stays below the target, whatever it is resolved against.
    fn check_path(&self, index: u32) -> Result<()> {
        self.check_string(index)?;
        check_below(self.string(index))
    }

    /// Checks that a name as it was given does not lead above the target either.
    fn check_given(&self, index: u32) -> Result<()> {
        self.check_string(index)?;
        let mut depth = 0;
        for part in self.string(index).split(|byte| *byte == b'/') {
            depth += match part {
                b".." => -1,
                b"" | b"." => 0,
                _ => 1,
            };
            let given = shown(self.string(index));
            ensure!(depth >= 0, "path '{given}' leaves the spool");
        }
        let absolute = self.string(index).starts_with(b"/");
        ensure!(
            !absolute,
            "path '{}' is absolute",
            shown(self.string(index))
        );
        Ok(())
    }

    /// Checks an operation; `known` are the paths that were checked before: many calls share one.
    fn check_op(&self, op: &PlanOp, known: &mut [bool]) -> Result<()> {
        ensure!(
            op.thread < self.header.n_threads,
            "unknown thread {}",
            op.thread
        );
        ensure!(
            op.start_ns >= 0 && op.end_ns >= op.start_ns,
            "ends before it starts"
        );
        ensure!(
            op.fd <= MAX_FD && op.fd2 <= MAX_FD,
            "descriptor out of range"
        );
        ensure!(
            op.ret <= i64::from(MAX_FD) || !semantics::makes_fd(op),
            "result out of range"
        );
        check_result(op)?;
        let mut check_path = |index: u32| {
            let known = known.get_mut(index as usize);
            if known.as_deref() != Some(&true) {
                self.check_path(index)?;
                known.into_iter().for_each(|known| *known = true);
            }
            Ok(())
        };
        check_path(op.path)?;
        self.check_given(op.given)?;
        self.check_given(op.given2)?;
        match semantics::has_second_path(op) {
            true => check_path(op.path2),
            false => self.check_string(op.path2),
        }
    }

    /// Counts the unsupported calls: (name, count), most frequent first.
    pub fn unsupported(&self) -> Vec<(String, usize)> {
        let mut counts = std::collections::BTreeMap::new();
        for (_, op) in self.of_kind(|kind| kind == Kind::Unsupported) {
            *counts.entry(semantics::name(op)).or_insert(0) += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

/// Threads that have begun: each forked thread is forked once, by its parent, before it acts.
struct Life<'a> {
    threads: &'a [PlanThread],
    started: Vec<bool>,
    forked: Vec<u32>,
}

impl<'a> Life<'a> {
    fn new(threads: &'a [PlanThread]) -> Self {
        Self {
            threads,
            started: threads.iter().map(|thread| thread.parent == NONE).collect(),
            forked: vec![0; threads.len()],
        }
    }

    fn check(&mut self, op: &PlanOp) -> Result<()> {
        let acts = self.started[op.thread as usize];
        ensure!(acts, "thread {} acts before its fork", op.thread);
        if op.op != PLAN_FORK || op.arg == i64::from(NONE) {
            return Ok(());
        }
        let unknown = "fork of an unknown thread";
        let child = usize::try_from(op.arg).context(unknown)?;
        let thread = self.threads.get(child).context(unknown)?;
        ensure!(
            thread.parent == op.thread,
            "thread {child} is forked by a stranger"
        );
        self.forked[child] += 1;
        self.started[child] = true;
        Ok(())
    }

    fn end(&self) -> Result<()> {
        for (at, (thread, times)) in self.threads.iter().zip(&self.forked).enumerate() {
            let wanted = u32::from(thread.parent != NONE);
            ensure!(
                *times == wanted,
                "thread {at} is forked {times} times instead of {wanted}"
            );
        }
        Ok(())
    }
}

/// Refuses a path that would leave the directory it is resolved against.
pub fn check_below(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    for part in path.split(|byte| *byte == b'/') {
        let normal = !part.is_empty() && part != b".";
        ensure!(part != b"..", "path '{}' leaves the spool", shown(path));
        ensure!(normal, "path '{}' is not normal", shown(path));
    }
    Ok(())
}

fn shown(path: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(path)
}

/// Refuses results that no kernel gives: they would make files, and the room for them, of a
/// negative size.
fn check_result(op: &PlanOp) -> Result<()> {
    ensure!(op.obj_size >= -1, "file of {} bytes", op.obj_size);
    let possible = match semantics::kind(op) {
        _ if op.ret < 0 => op.ret >= -MAX_ERRNO,
        Kind::Truncate | Kind::Ftruncate => op.offset >= 0,
        Kind::Read | Kind::Write => op.ret <= MAX_COUNT && op.offset.checked_add(op.ret).is_some(),
        Kind::CopyRange | Kind::Splice => {
            let fits = |offset: i64| offset.checked_add(op.ret).is_some();
            fits(op.offset) && fits(op.arg)
        }
        _ => true,
    };
    ensure!(possible, "impossible result {}", op.ret);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::try_plan;

    fn refusal(script: &str) -> String {
        let error = try_plan(script).expect_err("must be refused");
        format!("{error:#}")
    }

    #[test]
    fn paths_that_could_leave_the_target_are_refused() {
        for path in ["../x", "a/../../x", "/etc/passwd", "a//b", "a/./b", "a/"] {
            let reason = refusal(&format!("A 0-10 unlink {path} = 0"));
            assert!(reason.contains(path), "{reason}");
            refusal(&format!("A 0-10 rename a {path} = 0"));
            refusal(&format!("tree {path}\nA 0-10 stat x = -2"));
        }
    }

    #[test]
    fn a_symlink_may_point_anywhere_as_it_is_only_text() {
        assert!(try_plan("A 0-10 symlink a /etc/passwd = 0").is_ok());
    }

    #[test]
    fn process_life_must_add_up() {
        assert!(refusal("A 0-10 FORK B = 0\nA 20-30 FORK B = 0").contains("2 times"));
        assert!(refusal("A 10-20 FORK B = 0\nB 0-5 stat x = -2").contains("before its fork"));
        assert!(refusal("A 10-5 stat x = -2").contains("ends before"));
        assert!(refusal("A 0-5 close fd=70000 = 0").contains("out of range"));
    }

    #[test]
    fn results_that_no_kernel_gives_are_refused() {
        let most = i64::MAX;
        for call in [
            "truncate a off=-1 = 0".into(),
            "stat a osize=-2 = 0".into(),
            "stat a = -4096".into(),
            format!("write a fd=3 off={most} = 1"),
            format!("pwrite64 a fd=3 off=0 = {most}"),
        ] {
            refusal(&format!("A 0-10 {call}"));
        }
        assert!(try_plan("A 0-10 truncate a off=-1 = -22").is_ok());
    }

    #[test]
    fn a_file_that_is_no_plan_is_refused() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        for text in ["", "short", &"x".repeat(500)] {
            std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
            assert!(super::Plan::open(file.path()).is_err());
        }
    }
}
