//! C2005: archives of mailing lists for Cyrus, a file for each mail, one directory very large.

use crate::mail::Mails;
use crate::program::{program, run as run_programs, source};
use crate::random::Random;
use crate::report::Report;
use crate::tar::{RECORD_BLOCKS, Tar, blocks_of, ended};
use crate::{Needs, Place, Size, scaled};
use anyhow::{Result, ensure};
use std::io::Write;

const FILES: u64 = 1_075_962;
/// Size of the whole archive as a tar.
const TAR_BYTES: u64 = 20_292_014_080;
/// Files of the largest directory.
const LARGEST: u64 = 100_512;
/// Other directories.
const LISTS: u64 = 400;
/// Standard deviation of the logarithm of the sizes of mails.
const SIGMA: f64 = 1.1;
const BLOCK: u64 = 512;

/// The steps, in this order; between the last two the filesystem is checked.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Step {
    /// Unpack a tar.
    Write,
    /// Pack everything into a pipe.
    Read,
    /// Remove everything.
    Remove,
}

/// Return the space that the load needs.
pub fn needs(scale: f64) -> Needs {
    Needs {
        bytes: scaled(TAR_BYTES, scale),
        names: scaled(FILES, scale) + LISTS + 1,
        source_bytes: 0,
    }
}

/// Do a step.
pub fn run(step: Step, place: &Place) -> Result<Report> {
    let root = format!("--directory={}", place.root.display());
    match step {
        Step::Write => {
            let tar = program("tar", ["--extract", "--file=-", &root]);
            let (mut report, _) = run_programs(vec![source("cyrus-archive", place.size)?, tar])?;
            report.count("files", scaled(FILES, place.size.scale));
            Ok(report)
        }
        Step::Read => {
            // With output to /dev/null, tar would not read the files.
            let tar = program("tar", ["--create", "--file=-", &root, "lists"]);
            let (mut report, said) = run_programs(vec![tar, program("wc", ["-c"])])?;
            report.count("tar_bytes", said.trim().parse()?);
            Ok(report)
        }
        Step::Remove => {
            let mut rm = program("rm", ["--recursive"]);
            rm.arg(place.root.join("lists"));
            Ok(run_programs(vec![rm])?.0)
        }
    }
}

/// Write the tar stream to unpack, which has exactly the published size.
pub fn stream(size: Size, out: impl Write) -> Result<()> {
    let lists = lists(size);
    let files = lists.iter().sum::<u64>();
    let sizes = sizes(size, files, lists.len() as u64)?;
    let mails = Mails::new(size.seed);
    let mut tar = Tar::new(out);
    tar.directory("lists/")?;
    let mut sizes = sizes.into_iter().enumerate();
    for (list, mails_of_it) in lists.into_iter().enumerate() {
        tar.directory(&format!("lists/{list:03}/"))?;
        for (uid, (number, bytes)) in sizes.by_ref().take(mails_of_it as usize).enumerate() {
            let mail = mails.of_size(number as u64, bytes as usize);
            tar.file(&format!("lists/{list:03}/{}.", uid + 1), &mail)?;
        }
    }
    Ok(tar.end()?)
}

/// Return the number of mails of each list, the largest in the middle.
fn lists(size: Size) -> Vec<u64> {
    let all = scaled(FILES, size.scale);
    let largest = scaled(LARGEST, size.scale).min(all);
    let rest = all - largest;
    let n = LISTS.min(rest);
    let mut random = Random::new(size.seed, 1);
    let weights: Vec<f64> = (0..n).map(|_| random.log_normal(1.0, 1.0)).collect();
    let sum: f64 = weights.iter().sum();
    let mut made: Vec<u64> = weights
        .iter()
        .map(|weight| (weight / sum * rest as f64) as u64)
        .collect();
    let left = rest - made.iter().sum::<u64>();
    for at in 0..left as usize {
        let n = made.len();
        made[at % n] += 1;
    }
    made.insert(made.len() / 2, largest);
    made
}

/// Return the size of each mail, bytes; together they fill the tar.
fn sizes(size: Size, files: u64, directories: u64) -> Result<Vec<u64>> {
    let published = (scaled(TAR_BYTES, size.scale) / BLOCK).next_multiple_of(RECORD_BLOCKS);
    let all = published.max(ended(3 * files));
    let headers = files + directories + 1;
    let end = 2;
    ensure!(all > 2 * headers + end, "too small a scale");
    let contents = all - headers - end;
    let mut random = Random::new(size.seed, 2);
    let weights: Vec<f64> = (0..files).map(|_| random.log_normal(1.0, SIGMA)).collect();
    let sum: f64 = weights.iter().sum();
    // Each mail has at least one block; the other blocks are shared by weight.
    let shared = (contents - files) as f64;
    let mut blocks: Vec<u64> = weights
        .iter()
        .map(|weight| 1 + (weight / sum * shared) as u64)
        .collect();
    let left = contents - blocks.iter().sum::<u64>();
    for at in 0..left as usize {
        blocks[at % files as usize] += 1;
    }
    let bytes = blocks
        .into_iter()
        .map(|blocks| blocks * BLOCK - random.below(BLOCK))
        .collect::<Vec<_>>();
    debug_assert!(bytes.iter().map(|&bytes| blocks_of(bytes)).sum::<u64>() == contents);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{FILES, LARGEST, TAR_BYTES, lists, sizes, stream};
    use crate::Size;
    use crate::tar::blocks_of;
    use std::io::{self, Write};

    struct Counted(u64);

    impl Write for &mut Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn at_scale_one_it_is_the_published_archive() {
        let size = Size {
            scale: 1.0,
            seed: 5,
        };
        let lists = lists(size);
        assert_eq!(lists.iter().sum::<u64>(), FILES);
        assert_eq!(lists.iter().max(), Some(&LARGEST));
        let sizes = sizes(size, FILES, lists.len() as u64).expect("large enough");
        let headers = FILES + lists.len() as u64 + 1;
        let blocks = sizes.iter().map(|&bytes| blocks_of(bytes)).sum::<u64>();
        assert_eq!((headers + blocks + 2) * 512, TAR_BYTES);
    }

    #[test]
    fn the_stream_is_as_long_as_it_should_be() {
        let mut counted = Counted(0);
        let size = Size {
            scale: 0.001,
            seed: 5,
        };
        stream(size, &mut counted).expect("nothing fails to be counted");
        assert_eq!(counted.0 % 10_240, 0);
        assert!(counted.0.abs_diff(TAR_BYTES / 1000) <= 10_240);
    }
}
