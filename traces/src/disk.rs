//! The file of a capture: chunks are written whole or not at all, and space is reserved for the
//! last records when the disk is full.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Space reserved for a full disk: buffered chunks, the last records of threads, meta.
const RESERVE_BYTES: u64 = 1 << 20;
/// The reserve is at most this part (1/n) of the free space, for small disks.
const RESERVE_SHARE: u64 = 4;
/// Retries are needed since btrfs frees space only with its next transaction. On any disk the
/// conversion of an earlier segment may take the space first, until it fails and cleans up.
const RETRIES: u32 = 20;
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Appends whole chunks.
#[derive(Debug)]
pub struct ChunkFile {
    file: File,
    /// Bytes of whole chunks, the file header included.
    bytes: u64,
    reserve: Option<File>,
    reserve_bytes: u64,
    /// Bytes of whole chunks when the disk was full.
    full_at: Option<u64>,
}

/// The kinds of chunks by their use of the reserve, so that the last records always fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Buffered records: these use at most half of the reserve.
    Data,
    /// Records that show which calls are lost.
    LastWords,
}

impl ChunkFile {
    /// Creates a file in an open directory; fails if the name exists or is a symbolic link, or if
    /// there is no space for a reserve as large as that of another file (`like_bytes`).
    pub fn create(
        directory: BorrowedFd<'_>,
        name: &str,
        like_bytes: Option<u64>,
    ) -> Result<ChunkFile> {
        let name = std::ffi::CString::new(name)?;
        let held_back = match like_bytes {
            Some(bytes) => Some((reserve(directory, bytes)?, bytes)),
            None => share(directory)
                .and_then(|bytes| Ok((reserve(directory, bytes)?, bytes)))
                .ok(),
        };
        let (reserve, reserve_bytes) = held_back.unzip();
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
        Ok(ChunkFile {
            file: open(directory, &name, flags)?,
            bytes: 0,
            reserve,
            reserve_bytes: reserve_bytes.unwrap_or(0),
            full_at: None,
        })
    }

    /// Size of the reserve for the last records; 0 if there was no space.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The disk was full: only the reserve for the last records is left.
    pub fn is_full(&self) -> bool {
        self.full_at.is_some()
    }

    /// Appends both parts, or neither if the disk is full; returns whether they were appended.
    pub fn append(&mut self, what: Chunk, head: &[u8], body: &[u8]) -> Result<bool> {
        let more = (head.len() + body.len()) as u64;
        if self.has_to_go_without(what, more) {
            return Ok(false);
        }
        let mut tries = 0;
        while let Err(error) = self.try_append(head, body) {
            if no_space(&error) {
                self.full_at.get_or_insert(self.bytes);
            }
            let held_back = self.reserve.take().is_some();
            if tries > 0 {
                std::thread::sleep(RETRY_AFTER);
                // SAFETY: a live descriptor of our own.
                unsafe { libc::syncfs(self.file.as_raw_fd()) };
            }
            // On a full btrfs even this may fail; the next try overwrites the rest.
            let cut = self.file.set_len(self.bytes);
            self.file.seek(SeekFrom::Start(self.bytes))?;
            if self.has_to_go_without(what, more) {
                cut?;
                return Ok(false);
            }
            if !self.is_full() || tries == RETRIES || (!held_back && tries == 0) {
                cut?;
                return Err(error);
            }
            tries += 1;
        }
        self.bytes += more;
        Ok(true)
    }

    fn has_to_go_without(&self, what: Chunk, more: u64) -> bool {
        let since = |full_at: u64| self.bytes - full_at;
        what == Chunk::Data
            && (self.full_at).is_some_and(|at| 2 * (since(at) + more) > self.reserve_bytes)
    }

    fn try_append(&mut self, head: &[u8], body: &[u8]) -> Result<()> {
        self.file.write_all(head)?;
        self.file.write_all(body)
    }

    /// Replaces the file header, which was appended first.
    pub fn write_header(&mut self, header: &[u8]) -> Result<()> {
        self.file.write_all_at(header, 0)
    }

    /// Makes all written data durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }
}

/// Returns whether the disk, a quota or the limit of file sizes is exhausted.
pub fn no_space(error: &Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Size of the reserve of the first file on a disk.
fn share(directory: BorrowedFd<'_>) -> Result<u64> {
    // SAFETY: an all-zero statvfs is valid; the descriptor lives.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    if unsafe { libc::fstatvfs(directory.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(Error::last_os_error());
    }
    let free = stat.f_bavail * stat.f_frsize;
    Ok(RESERVE_BYTES.min(free / RESERVE_SHARE))
}

/// Reserves space on the same disk in a file without a name: closing it, also by a crash, frees it.
fn reserve(directory: BorrowedFd<'_>, bytes: u64) -> Result<File> {
    let file = open(directory, c".", libc::O_WRONLY | libc::O_TMPFILE)?;
    // SAFETY: our own descriptor; the size is positive and small.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes as i64) } {
        0 => Ok(file),
        _ => Err(Error::last_os_error()),
    }
}

fn open(directory: BorrowedFd<'_>, name: &std::ffi::CStr, flags: libc::c_int) -> Result<File> {
    // SAFETY: a live directory descriptor and a C string.
    let fd = unsafe {
        libc::openat(
            directory.as_raw_fd(),
            name.as_ptr(),
            flags | libc::O_CLOEXEC,
            0o600,
        )
    };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: just opened, without another owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}
