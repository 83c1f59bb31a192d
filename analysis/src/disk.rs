//! The FUSE filesystem: a single file, which is its root.

use crate::delays::{Delays, Kind};
use crate::model::Model;
use anyhow::Result;
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, RwLock};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TTL: Duration = Duration::from_secs(3600);
const BLOCK: u64 = 512;
const REQUEST_BYTES: u32 = 1 << 20;

const QUEUE: u16 = 64;

/// The image, its delays, and the log of delayed requests.
pub struct Disk {
    image: File,
    bytes: u64,
    log: Mutex<File>,
    delays: Arc<RwLock<Delays>>,
    model: Option<Model>,
}

impl Disk {
    /// Serve `image`; its size is that of the disk, and `model` is JSON.
    pub fn new(
        image: File,
        log: File,
        delays: Arc<RwLock<Delays>>,
        model: Option<&str>,
    ) -> Result<Self> {
        let bytes = image.metadata()?.len();
        Ok(Self {
            image,
            bytes,
            log: Mutex::new(log),
            delays,
            model: model.map(|json| Model::new(json, bytes)).transpose()?,
        })
    }

    /// Carry out a request, answer it after its delay at the earliest, and log it if it has one.
    fn slowly<T>(
        &self,
        kind: Kind,
        offset: u64,
        bytes: u64,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let (delay, modelled) = {
            let delays = self.delays.read().expect("no thread panics with it");
            (delays.of(kind, offset, bytes), delays.modelled())
        };
        if let (Some(model), Some(path)) = (self.model.as_ref(), modelled) {
            let done = work();
            model.serve(kind, offset, bytes, path);
            return done;
        }
        if delay.is_zero() {
            return work();
        }
        let begin = since_epoch();
        sleep(delay);
        let done = work();
        let (from, to) = (begin.as_nanos(), since_epoch().as_nanos());
        let line = format!("{} {offset} {bytes} {from} {to}\n", kind.word());
        self.log
            .lock()
            .expect("no thread panics with it")
            .write_all(line.as_bytes())?;
        done
    }
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl Filesystem for Disk {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A smaller limit of the kernel is fine; simultaneous requests must arrive simultaneously.
        let _ = config.set_max_write(REQUEST_BYTES);
        let _ = config.set_max_background(QUEUE);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let attr = FileAttr {
            ino,
            size: self.bytes,
            blocks: self.bytes.div_ceil(BLOCK),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: req.uid(),
            gid: req.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&TTL, &attr);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Every request of the loop device must get here: no page cache in between.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let wanted = u64::from(size).min(self.bytes.saturating_sub(offset));
        let mut data = vec![0; usize::try_from(wanted).unwrap_or(0)];
        let done = self.slowly(Kind::Read, offset, wanted, || {
            self.image.read_exact_at(&mut data, offset)
        });
        match done {
            Ok(()) => reply.data(&data),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = self.slowly(Kind::Write, offset, data.len() as u64, || {
            self.image.write_all_at(data, offset)
        });
        match (done, u32::try_from(data.len())) {
            (Ok(()), Ok(written)) => reply.written(written),
            _ => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.slowly(Kind::Flush, 0, 0, || Ok(())) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok(); // close(2), not a cache flush
    }
}
