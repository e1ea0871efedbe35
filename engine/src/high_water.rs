//! The high-water mark: the highest position this copy is known to have held, kept in a file
//! of its own beside the database.
//!
//! A database that is found below its mark was rolled back: an old backup was put in its
//! place, or its write-ahead log was lost. It may then lack commits that this node has
//! acknowledged, and must not count as a member that holds them. The database itself cannot
//! tell, because everything in it was rolled back together.
//!
//! ```text
//! offset  size
//!      0     4  "TGHW"
//!      4     4  version, u32 little endian: 1
//!      8     8  seq, u64 little endian
//!     16     4  CRC-32C of the sixteen bytes before, u32 little endian
//! ```
//!
//! Rewritten whole (temporary file, fsync, rename, fsync of the directory), at most once a
//! second while it changes, and when the database is closed. It may lag behind; it is never
//! ahead, because only durable positions are recorded.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::change::Seq;
use crate::error::{Error, Result};

/// Name of the file inside a data directory.
pub const HIGH_WATER_FILE: &str = "high-water";

const MAGIC: [u8; 4] = *b"TGHW";
const VERSION: u32 = 1;
const SIZE: usize = 20;
/// The file is not rewritten more often than this.
const INTERVAL: Duration = Duration::from_secs(1);

/// The mark of one data directory.
#[derive(Debug)]
pub struct HighWater {
    dir: PathBuf,
    stored: Seq,
    reached: Seq,
    written_at: Option<Instant>,
}

impl HighWater {
    /// Reads the mark; zero where there is no file yet.
    pub fn open(dir: &Path) -> Result<Self> {
        let stored = match std::fs::read(dir.join(HIGH_WATER_FILE)) {
            Ok(bytes) => parse(&bytes)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Seq::ZERO,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            dir: dir.to_owned(),
            stored,
            reached: stored,
            written_at: None,
        })
    }

    /// The highest position known.
    pub fn mark(&self) -> Seq {
        self.reached
    }

    /// True when a database whose log ends here was rolled back.
    pub fn is_rolled_back(&self, head: Seq) -> bool {
        head < self.reached
    }

    /// Notes a durable position, and writes the file if it is due.
    pub fn reach(&mut self, seq: Seq, now: Instant) -> Result<()> {
        self.reached = self.reached.max(seq);
        let due = self
            .written_at
            .is_none_or(|at| now.duration_since(at) >= INTERVAL);
        if due && self.reached > self.stored {
            self.written_at = Some(now);
            return self.flush();
        }
        Ok(())
    }

    /// Writes the file if the mark has risen.
    pub fn flush(&mut self) -> Result<()> {
        if self.reached > self.stored {
            self.write(self.reached)?;
        }
        Ok(())
    }

    /// Sets the mark anew, downwards too: a snapshot was installed, or an operator has
    /// decided that what was above is lost.
    pub fn reset(&mut self, seq: Seq) -> Result<()> {
        self.write(seq)?;
        self.reached = seq;
        Ok(())
    }

    fn write(&mut self, seq: Seq) -> Result<()> {
        let path = self.dir.join(HIGH_WATER_FILE);
        let temporary = self.dir.join("high-water.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&encode(seq))?;
        file.sync_all()?;
        std::fs::rename(&temporary, &path)?;
        File::open(&self.dir)?.sync_all()?;
        self.stored = seq;
        Ok(())
    }
}

fn encode(seq: Seq) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&seq.get().to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn parse(bytes: &[u8]) -> Result<Seq> {
    let damaged = |what: &str| {
        Error::Format(format!(
            "the high-water file {what}; if the database beside it is known to be complete, \
             remove the file"
        ))
    };
    let bytes: &[u8; SIZE] = bytes.try_into().map_err(|_| damaged("has a wrong size"))?;
    if bytes[..4] != MAGIC {
        return Err(damaged("does not begin with TGHW"));
    }
    let word = |at: usize| bytes[at..at + 4].try_into().expect("four bytes");
    if u32::from_le_bytes(word(4)) != VERSION {
        return Err(damaged("has an unknown version"));
    }
    if u32::from_le_bytes(word(16)) != crc32c::crc32c(&bytes[..16]) {
        return Err(damaged("is damaged"));
    }
    let seq = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    match i64::try_from(seq) {
        Ok(_) => Ok(Seq::new(seq)),
        Err(_) => Err(damaged("holds a position out of range")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_written_at_once_then_once_a_second_and_at_close() {
        let dir = tempfile::tempdir().unwrap();
        let stored = || HighWater::open(dir.path()).unwrap().mark();
        let start = Instant::now();
        let mut mark = HighWater::open(dir.path()).unwrap();
        mark.reach(Seq::new(5), start).unwrap();
        assert_eq!(stored(), Seq::new(5));
        mark.reach(Seq::new(6), start + Duration::from_millis(900))
            .unwrap();
        assert_eq!(stored(), Seq::new(5));
        mark.reach(Seq::new(7), start + Duration::from_millis(1000))
            .unwrap();
        assert_eq!(stored(), Seq::new(7));
        mark.reach(Seq::new(8), start + Duration::from_millis(1001))
            .unwrap();
        mark.flush().unwrap();
        assert_eq!(stored(), Seq::new(8));
        assert!(mark.is_rolled_back(Seq::new(7)) && !mark.is_rolled_back(Seq::new(8)));
        mark.reset(Seq::new(3)).unwrap();
        assert_eq!(stored(), Seq::new(3));
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let good = encode(Seq::new(77));
        assert_eq!(parse(&good).unwrap(), Seq::new(77));
        for at in 0..SIZE {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert!(matches!(parse(&bad), Err(Error::Format(_))), "byte {at}");
        }
        assert!(parse(&good[..19]).is_err());
    }
}
