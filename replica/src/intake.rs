//! What a follower makes of each part of a batch that arrives.
//!
//! Above TCP nothing should be lost, doubled or out of order; this file makes sure that it
//! would be seen. A batch continues exactly where the one before ended, its parts follow each
//! other, each part is whole, and so is the batch. What was seen before is ignored (a proxy
//! may repeat itself); everything else that does not fit ends the stream, and the follower
//! resumes from what it has applied.
//!
//! The verdict is given before a byte is kept, so a wrong part never reaches the spool.

use tidegate_engine::Seq;
use xxhash_rust::xxh3::Xxh3Default;

use crate::error::{Error, Result};

/// Head of a part, as it arrived. The bytes are passed beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartHead {
    /// Position the batch starts after.
    pub from: Seq,
    /// Position after the batch.
    pub to: Seq,
    /// Place of the bytes in the batch.
    pub offset: u64,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// On the last part only.
    pub end: Option<BatchEnd>,
}

/// Closes a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEnd {
    /// Bytes of the batch.
    pub total_bytes: u64,
    /// XXH3-128 of the batch.
    pub hash: u128,
    /// When the source committed it, milliseconds on its clock; 0 if unknown.
    pub committed_ms: u64,
}

/// What to do with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Begin a new spool and put the bytes into it.
    First,
    /// Append the bytes to the spool.
    Next,
    /// Seen before; throw it away.
    Duplicate,
}

/// Follows the parts of one stream.
pub struct Intake {
    /// Position after the newest batch that is wholly here.
    received: Seq,
    open: Option<OpenBatch>,
    batch_bytes_max: u64,
}

struct OpenBatch {
    from: Seq,
    to: Seq,
    bytes: u64,
    hash: Xxh3Default,
}

impl Intake {
    /// Starts after `applied`. A batch larger than `batch_bytes_max` ends the stream.
    pub fn new(applied: Seq, batch_bytes_max: u64) -> Self {
        Self {
            received: applied,
            open: None,
            batch_bytes_max,
        }
    }

    /// Position after the newest batch that is wholly here.
    pub fn received(&self) -> Seq {
        self.received
    }

    /// Judges a part. After a last part that is not a duplicate, [`Self::received`] is `to`.
    pub fn part(&mut self, head: &PartHead, data: &[u8]) -> Result<Verdict> {
        if crc32c::crc32c(data) != head.crc32c {
            return Err(Error::protocol(format!(
                "a part of the batch to {} at byte {} arrived damaged",
                head.to, head.offset
            )));
        }
        match self.place(head, data)? {
            Verdict::Duplicate => Ok(Verdict::Duplicate),
            kept => {
                self.take(head, data)?;
                Ok(kept)
            }
        }
    }

    /// A check belongs to the position after the newest whole batch, and between batches.
    pub fn check(&self, seq: Seq) -> Result<()> {
        if self.open.is_none() && seq == self.received {
            Ok(())
        } else {
            Err(Error::protocol(format!(
                "a check at {seq} arrived while the stream is at {}",
                self.received
            )))
        }
    }

    /// Where the part belongs.
    fn place(&self, head: &PartHead, data: &[u8]) -> Result<Verdict> {
        if head.to <= self.received {
            return Ok(Verdict::Duplicate);
        }
        let Some(open) = &self.open else {
            return if head.from == self.received && head.offset == 0 {
                Ok(Verdict::First)
            } else {
                Err(self.gap(head))
            };
        };
        if (head.from, head.to) != (open.from, open.to) || head.offset > open.bytes {
            return Err(self.gap(head));
        }
        if head.offset == open.bytes {
            return Ok(Verdict::Next);
        }
        if head.offset + data.len() as u64 <= open.bytes && head.end.is_none() {
            Ok(Verdict::Duplicate)
        } else {
            Err(self.gap(head))
        }
    }

    fn take(&mut self, head: &PartHead, data: &[u8]) -> Result<()> {
        let open = self.open.get_or_insert_with(|| OpenBatch {
            from: head.from,
            to: head.to,
            bytes: 0,
            hash: Xxh3Default::new(),
        });
        open.bytes += data.len() as u64;
        open.hash.update(data);
        if open.bytes > self.batch_bytes_max {
            return Err(Error::protocol(format!(
                "the batch to {} passes {} bytes",
                head.to, self.batch_bytes_max
            )));
        }
        let Some(end) = head.end else {
            return Ok(());
        };
        if (open.bytes, open.hash.digest128()) != (end.total_bytes, end.hash) {
            return Err(Error::protocol(format!(
                "the batch to {} arrived damaged: {} bytes of {}, or another hash",
                head.to, open.bytes, end.total_bytes
            )));
        }
        self.received = head.to;
        self.open = None;
        Ok(())
    }

    fn gap(&self, head: &PartHead) -> Error {
        let expected = match &self.open {
            Some(open) => format!("{}..{} at byte {}", open.from, open.to, open.bytes),
            None => format!("{}.. at byte 0", self.received),
        };
        Error::protocol(format!(
            "a part of {}..{} at byte {} arrived where {expected} was due",
            head.from, head.to, head.offset
        ))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Cuts a batch into parts of at most `size` bytes.
    fn parts(from: u64, to: u64, bytes: &[u8], size: usize) -> Vec<(PartHead, Vec<u8>)> {
        let mut cuts: Vec<&[u8]> = bytes.chunks(size).collect();
        if cuts.is_empty() {
            cuts.push(&[]);
        }
        let last = cuts.len() - 1;
        let mut offset = 0;
        let mut parts = Vec::new();
        for (index, data) in cuts.into_iter().enumerate() {
            let end = (index == last).then(|| BatchEnd {
                total_bytes: bytes.len() as u64,
                hash: xxhash_rust::xxh3::xxh3_128(bytes),
                committed_ms: 0,
            });
            let head = PartHead {
                from: Seq::new(from),
                to: Seq::new(to),
                offset,
                crc32c: crc32c::crc32c(data),
                end,
            };
            offset += data.len() as u64;
            parts.push((head, data.to_vec()));
        }
        parts
    }

    fn intake(applied: u64) -> Intake {
        Intake::new(Seq::new(applied), 1_000)
    }

    fn feed(intake: &mut Intake, parts: &[(PartHead, Vec<u8>)]) -> Vec<Result<Verdict>> {
        parts.iter().map(|(h, d)| intake.part(h, d)).collect()
    }

    #[test]
    fn batches_that_follow_each_other_are_taken() {
        let mut intake = intake(10);
        let outcome = feed(&mut intake, &parts(10, 13, b"abcdef", 4));
        assert!(matches!(
            outcome[..],
            [Ok(Verdict::First), Ok(Verdict::Next)]
        ));
        assert_eq!(intake.received(), Seq::new(13));
        let outcome = feed(&mut intake, &parts(13, 20, b"", 4));
        assert!(matches!(outcome[..], [Ok(Verdict::First)]));
        assert_eq!(intake.received(), Seq::new(20));
    }

    #[test]
    fn a_gap_between_batches_or_parts_ends_the_stream() {
        assert!(feed(&mut intake(10), &parts(11, 13, b"abc", 4))[0].is_err());
        assert!(feed(&mut intake(10), &parts(9, 13, b"abc", 4))[0].is_err());
        let cut = parts(10, 13, b"abcdefghijkl", 4);
        let mut intake = intake(10);
        assert!(intake.part(&cut[0].0, &cut[0].1).is_ok());
        assert!(intake.part(&cut[2].0, &cut[2].1).is_err());
    }

    #[test]
    fn what_was_seen_before_is_ignored() {
        let mut intake = intake(10);
        let cut = parts(10, 13, b"abcdefgh", 4);
        assert_eq!(intake.part(&cut[0].0, &cut[0].1).unwrap(), Verdict::First);
        let again = intake.part(&cut[0].0, &cut[0].1).unwrap();
        assert_eq!(again, Verdict::Duplicate);
        assert_eq!(intake.part(&cut[1].0, &cut[1].1).unwrap(), Verdict::Next);
        for (head, data) in &cut {
            assert_eq!(intake.part(head, data).unwrap(), Verdict::Duplicate);
        }
        assert_eq!(intake.received(), Seq::new(13));
    }

    #[test]
    fn damage_in_a_part_or_in_the_whole_ends_the_stream() {
        let cut = parts(0, 3, b"abcdefgh", 4);
        let mut flipped = cut[0].1.clone();
        flipped[1] ^= 1;
        assert!(intake(0).part(&cut[0].0, &flipped).is_err());

        // Each part whole, the batch not: one part was exchanged for another.
        let other = parts(0, 3, b"abcdefgX", 4);
        let mut intake = intake(0);
        intake.part(&cut[0].0, &cut[0].1).unwrap();
        let mut head = other[1].0;
        head.end = cut[1].0.end;
        assert!(intake.part(&head, &other[1].1).is_err());
    }

    #[test]
    fn a_batch_beyond_the_limit_ends_the_stream() {
        let bytes = vec![0; 1_001];
        let outcome = feed(&mut intake(0), &parts(0, 1, &bytes, 500));
        assert!(outcome[..2].iter().all(Result::is_ok));
        assert!(outcome[2].is_err());
    }

    #[test]
    fn a_check_belongs_after_the_batch_it_names() {
        let mut intake = intake(10);
        assert!(intake.check(Seq::new(10)).is_ok());
        assert!(intake.check(Seq::new(11)).is_err());
        let cut = parts(10, 13, b"abcdefgh", 4);
        intake.part(&cut[0].0, &cut[0].1).unwrap();
        assert!(intake.check(Seq::new(10)).is_err());
    }

    proptest! {
        /// Whatever is lost, doubled or exchanged on the way: what was taken is a beginning of
        /// what was sent, byte for byte.
        #[test]
        fn what_is_taken_is_a_beginning_of_what_was_sent(
            batches in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
            faults in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 0..4),
        ) {
            let mut sent = Vec::new();
            for (index, bytes) in batches.iter().enumerate() {
                let from = index as u64 * 10;
                sent.extend(parts(from, from + 10, bytes, 7));
            }
            let mut arriving = sent.clone();
            for (kind, at) in faults {
                let at = at.index(arriving.len());
                match kind {
                    0 if arriving.len() > 1 => { arriving.remove(at); }
                    1 => arriving.insert(at, arriving[at].clone()),
                    _ => arriving.swap(at, 0),
                }
            }
            let mut intake = intake(0);
            let mut taken = Vec::new();
            for (head, data) in &arriving {
                match intake.part(head, data) {
                    Ok(Verdict::Duplicate) => {}
                    Ok(_) => taken.push((*head, data.clone())),
                    Err(_) => break,
                }
            }
            prop_assert_eq!(&sent[..taken.len()], &taken[..]);
        }
    }
}
