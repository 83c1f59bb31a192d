//! The file below a capture: whole chunks or none, and room left for the last words when the
//! disk is full.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// What a full disk must still take: buffered chunks, the last words of threads, meta.
const RESERVE_BYTES: u64 = 1 << 20;
/// On a small disk no more than this part of what is free.
const RESERVE_SHARE: u64 = 4;
/// btrfs gives freed space back only with its next transaction; on any disk the conversion of an
/// earlier segment may take it first, finds then that it is not enough, and cleans up.
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

/// What the held back space of a full disk is for, so that the last words always fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// What was buffered: at most half of it.
    Data,
    /// What tells which calls are lost.
    LastWords,
}

impl ChunkFile {
    /// Creates a file in an open directory; fails if the name exists or is a symbolic link, or if
    /// there is no room to hold back as much as another one did (`like_bytes`).
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

    /// Bytes held back for the last words; 0 where none could be.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The disk was full: what fits now is what was held back for the last words.
    pub fn is_full(&self) -> bool {
        self.full_at.is_some()
    }

    /// Appends both parts or neither, and tells which: on a full disk there may be no room.
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
            // A full btrfs may have no room even for this; the next try writes over the rest.
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

    /// Replaces the file header, which was the first thing appended.
    pub fn write_header(&mut self, header: &[u8]) -> Result<()> {
        self.file.write_all_at(header, 0)
    }

    /// Makes all durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }
}

/// Is the disk, or what we may use of it, full?
pub fn no_space(error: &Error) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What the first file on a disk holds back.
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

/// Space on the same disk without a name: given back when it is closed, however we end.
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
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}
