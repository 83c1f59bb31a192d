//! Mails: a header and lines of text, determined by a seed and a number.

use crate::random::Random;

/// Sizes of mails of 2002 (SpamAssassin's public corpus): the median in bytes, and the deviation
/// of the logarithm that gives their mean, 5.4 kB.
const MEDIAN: f64 = 3512.0;
const SIGMA: f64 = 0.93;
/// The mean, bytes.
pub const MEAN_BYTES: u64 = 5400;
const LEAST: f64 = 400.0;
const MOST: f64 = 300_000.0;

const POOL_BYTES: usize = 1 << 20;
const LONGEST_LINE: u64 = 76;

/// The source of all mails of a seed.
#[derive(Debug)]
pub struct Mails {
    seed: u64,
    pool: Vec<u8>,
}

impl Mails {
    /// The mails of a seed.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            pool: text(seed, POOL_BYTES),
        }
    }

    /// The size of a mail, bytes.
    pub fn size(&self, number: u64) -> usize {
        let drawn = Random::new(self.seed, number).log_normal(MEDIAN, SIGMA);
        drawn.clamp(LEAST, MOST) as usize
    }

    /// Return a mail, with a size determined by its number.
    pub fn mail(&self, number: u64) -> Vec<u8> {
        self.of_size(number, self.size(number))
    }

    /// Return a mail of a given size; it ends with a line feed.
    pub fn of_size(&self, number: u64, size: usize) -> Vec<u8> {
        let mut made = header(number).into_bytes();
        made.truncate(size);
        let mut random = Random::new(self.seed ^ 1, number);
        while made.len() < size {
            let at = random.below(POOL_BYTES as u64) as usize;
            let piece = (size - made.len()).min(POOL_BYTES - at);
            made.extend_from_slice(&self.pool[at..at + piece]);
        }
        if let Some(last) = made.last_mut() {
            *last = b'\n';
        }
        made
    }
}

fn header(number: u64) -> String {
    format!(
        "Return-Path: <sender{0}@example.org>\nDelivered-To: user@example.com\n\
         Received: from mx.example.org by mail.example.com with SMTP id {0:x}; \
         Mon, 1 Mar 2004 12:00:00 +0000\nMessage-ID: <{0:x}@example.org>\n\
         From: Sender {0} <sender{0}@example.org>\nTo: user@example.com\n\
         Subject: message {0}\n\n",
        number
    )
}

/// Words in lines.
fn text(seed: u64, size: usize) -> Vec<u8> {
    let mut random = Random::new(seed, u64::MAX);
    let mut made = Vec::with_capacity(size);
    let mut left = random.below(LONGEST_LINE);
    while made.len() < size {
        let next = match left {
            0 => b'\n',
            _ if random.coin(0.17) => b' ',
            _ => b'a' + random.below(26) as u8,
        };
        left = left.checked_sub(1).unwrap_or(random.below(LONGEST_LINE));
        made.push(next);
    }
    made
}

/// The lines of a mail, each with its line feed.
pub fn lines(mail: &[u8]) -> impl Iterator<Item = &[u8]> {
    mail.split_inclusive(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::{Mails, lines};

    #[test]
    fn mails_have_their_sizes_and_end_with_a_line() {
        let mails = Mails::new(3);
        for number in 0..200 {
            let mail = mails.mail(number);
            assert_eq!(mail.len(), mails.size(number));
            assert_eq!(mail.last(), Some(&b'\n'));
            assert_eq!(lines(&mail).map(<[u8]>::len).sum::<usize>(), mail.len());
        }
        assert_eq!(mails.of_size(1, 10).len(), 10);
        assert_ne!(mails.mail(1), mails.mail(2));
    }

    #[test]
    fn sizes_are_those_of_2002() {
        let mails = Mails::new(0);
        let mut sizes: Vec<_> = (0..20_000).map(|number| mails.size(number)).collect();
        sizes.sort_unstable();
        assert!((3300..3700).contains(&sizes[10_000]));
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((5000..5800).contains(&mean), "{mean}");
    }
}
