//! A spool: the bytes of one batch, in memory while they are few and in a file when not.
//!
//! A batch can be a whole table. Its source reads it in one short read transaction into a
//! spool and sends it from there, at the pace of the network, in parts; its target collects
//! the parts in a spool before it opens a write transaction. So no transaction ever waits
//! for a peer, and memory stays bounded.
//!
//! The file has no name: it is unlinked as soon as it is open, so a crash leaves nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use crate::error::{Error, Result};

/// Bytes of a spool that stay in memory unless said otherwise.
pub const SPOOL_MEMORY_DEFAULT: usize = 4 << 20;
/// A part never carries more. Messages of the wire are bounded by it.
pub const PART_BYTES_MAX: usize = 512 << 10;
/// Bytes collected before they are written to the file.
const WRITE_BUFFER: usize = 256 << 10;

/// Bytes that grow at the end and are read anywhere.
pub struct Spool {
    dir: PathBuf,
    memory_max: usize,
    file: Option<File>,
    /// Bytes already in the file.
    filed: u64,
    /// Bytes after those.
    tail: Vec<u8>,
    hasher: Box<Xxh3>,
}

/// A piece of a spool on its way to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Place of its first byte.
    pub offset: u64,
    /// The bytes, [`PART_BYTES_MAX`] at most.
    pub bytes: Vec<u8>,
    /// Their CRC-32C.
    pub crc32c: u32,
}

/// Reads a spool from its start.
pub struct SpoolReader<'a> {
    spool: &'a Spool,
    offset: u64,
    buffer: Vec<u8>,
    start: usize,
}

impl Spool {
    /// An empty spool. Its file, if it needs one, is made in `dir`.
    pub fn new(dir: &Path, memory_max: usize) -> Self {
        Self {
            dir: dir.to_owned(),
            memory_max,
            file: None,
            filed: 0,
            tail: Vec::new(),
            hasher: Box::new(Xxh3::new()),
        }
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.filed + self.tail.len() as u64
    }

    /// True before the first byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when part of it lies in a file.
    pub fn is_filed(&self) -> bool {
        self.file.is_some()
    }

    /// XXH3-128 of everything appended so far.
    pub fn hash(&self) -> u128 {
        self.hasher.digest128()
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hasher.update(bytes);
        self.tail.extend_from_slice(bytes);
        let limit = match self.file {
            Some(_) => WRITE_BUFFER,
            None => self.memory_max,
        };
        if self.tail.len() > limit {
            self.write_tail()?;
        }
        Ok(())
    }

    /// The part that starts at `offset`, of at most `bytes_max` bytes. `None` at the end.
    pub fn part(&self, offset: u64, bytes_max: usize) -> Result<Option<Part>> {
        if offset >= self.len() {
            return Ok(None);
        }
        let left = self.len() - offset;
        let size = left.min(bytes_max.min(PART_BYTES_MAX) as u64);
        let mut bytes = vec![0; usize::try_from(size).expect("a part is small")];
        self.read_exact_at(&mut bytes, offset)?;
        let crc32c = crc32c::crc32c(&bytes);
        Ok(Some(Part {
            offset,
            bytes,
            crc32c,
        }))
    }

    /// Appends a received part. It must follow what is here and be whole.
    pub fn append_part(&mut self, part: &Part) -> Result<()> {
        if part.offset != self.len() {
            return Err(Error::Format(format!(
                "a part starts at {} but {} bytes are here",
                part.offset,
                self.len()
            )));
        }
        if part.bytes.len() > PART_BYTES_MAX {
            return Err(Error::Format("a part is larger than allowed".into()));
        }
        if crc32c::crc32c(&part.bytes) != part.crc32c {
            return Err(Error::Format("a part was damaged on its way".into()));
        }
        self.append(&part.bytes)
    }

    /// Reads from the start.
    pub fn reader(&self) -> SpoolReader<'_> {
        SpoolReader {
            spool: self,
            offset: 0,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// Fills the buffer from `offset` on; what it asks for must be there.
    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let in_file = self.filed.saturating_sub(offset).min(buffer.len() as u64);
        let in_file = usize::try_from(in_file).expect("bounded by the buffer");
        let (from_file, from_tail) = buffer.split_at_mut(in_file);
        if let (Some(file), false) = (&self.file, from_file.is_empty()) {
            file.read_exact_at(from_file, offset)?;
        }
        if !from_tail.is_empty() {
            let start = offset + in_file as u64 - self.filed;
            let start = usize::try_from(start).expect("within the tail");
            from_tail.copy_from_slice(&self.tail[start..start + from_tail.len()]);
        }
        Ok(())
    }

    fn write_tail(&mut self) -> Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(unnamed_file(&self.dir)?),
        };
        file.write_all_at(&self.tail, self.filed)?;
        self.filed += self.tail.len() as u64;
        self.tail.clear();
        self.tail.shrink_to(2 * WRITE_BUFFER);
        Ok(())
    }
}

impl Read for SpoolReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.start == self.buffer.len() {
            let part = self.spool.part(self.offset, WRITE_BUFFER);
            match part.map_err(|e| io::Error::other(e.to_string()))? {
                None => return Ok(0),
                Some(part) => self.buffer = part.bytes,
            }
            self.offset += self.buffer.len() as u64;
            self.start = 0;
        }
        let count = out.len().min(self.buffer.len() - self.start);
        out[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

fn unnamed_file(dir: &Path) -> Result<File> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|e| Error::Io(format!("no randomness: {e}")))?;
    let path = dir.join(format!("spool-{:016x}", u64::from_le_bytes(random)));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dir: &Path, memory_max: usize, bytes: &[u8]) -> Spool {
        let mut spool = Spool::new(dir, memory_max);
        for chunk in bytes.chunks(70_001) {
            spool.append(chunk).unwrap();
        }
        spool
    }

    fn pattern(size: usize) -> Vec<u8> {
        (0..size).map(|i| (i * 31 + i / 251) as u8).collect()
    }

    #[test]
    fn what_went_in_comes_out_from_memory_and_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = pattern(1_500_000);
        for memory_max in [0, 100_000, 10_000_000] {
            let spool = filled(dir.path(), memory_max, &bytes);
            assert_eq!(spool.is_filed(), memory_max < bytes.len());
            let mut read = Vec::new();
            spool.reader().read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes);
        }
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "the file has no name");
    }

    #[test]
    fn parts_rebuild_the_spool_and_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let source = filled(dir.path(), 1000, &pattern(1_300_000));
        let mut target = Spool::new(dir.path(), 1000);
        while let Some(part) = source.part(target.len(), PART_BYTES_MAX).unwrap() {
            target.append_part(&part).unwrap();
        }
        assert_eq!(target.hash(), source.hash());
        assert_eq!(target.len(), 1_300_000);
    }

    #[test]
    fn a_damaged_or_misplaced_part_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let source = filled(dir.path(), 1000, &pattern(5000));
        let mut part = source.part(0, 100).unwrap().unwrap();
        let mut target = Spool::new(dir.path(), 1000);
        part.bytes[7] ^= 1;
        assert!(matches!(target.append_part(&part), Err(Error::Format(_))));
        let later = source.part(100, 100).unwrap().unwrap();
        assert!(matches!(target.append_part(&later), Err(Error::Format(_))));
        assert!(target.is_empty());
    }
}
