//! Spools that are only a directory of their filesystem. The kernel side identifies them by the
//! address of the directory's inode, which is valid while the recorder has the directory open.

use std::fs::File;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use libbpf_rs::ProgramMut;
use spoolscope_traces::error_code::{Code, Failure};

use crate::host::Spool;
use crate::iterators;

/// The directories of such spools, open.
#[derive(Debug)]
pub struct Tops {
    open: Vec<Option<File>>,
}

impl Tops {
    /// Open the directories of these spools.
    pub fn open(spools: &[Spool]) -> Result<Tops> {
        let open = spools.iter().map(|spool| {
            spool
                .is_part()
                .then(|| File::open(&spool.mount))
                .transpose()
                .with_context(|| format!("Failed to open {}", spool.mount.display()))
        });
        Ok(Tops {
            open: open.collect::<Result<_>>()?,
        })
    }

    /// Return for each spool the descriptor of its directory; None if all of its filesystem is the
    /// spool.
    pub fn descriptors(&self) -> impl Iterator<Item = Option<u32>> {
        let open = self.open.iter();
        open.map(|file| file.as_ref().map(|file| file.as_raw_fd() as u32))
    }

    /// Let the kernel side find the inodes; `known` returns what it found.
    pub fn find(&self, finder: &ProgramMut<'_>, known: impl Fn() -> Vec<u64>) -> Result<()> {
        if self.open.iter().all(Option::is_none) {
            return Ok(());
        }
        iterators::read_all(iterators::open(&iterators::attach(finder)?)?)?;
        let mut found = known().into_iter().zip(&self.open);
        ensure!(
            found.all(|(address, file)| file.is_none() || address != 0),
            Failure::new(
                Code::Usage,
                "the kernel does not show the directory of a spool",
                "name its mount point",
            )
        );
        Ok(())
    }
}
