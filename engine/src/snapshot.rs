//! Snapshots: a whole database for a node that cannot be fed from the log.
//!
//! The sending side copies the pages of one read view, so the copy is a committed state and
//! knows its own position (`max(change_id)` is in it). While the view is open no checkpoint
//! can truncate the write-ahead log, and a network can be slow for hours; so the pages go
//! into a local spool file first, at disk speed, the view ends, and the file is what is
//! streamed. The spool has no name: a crash leaves nothing behind.
//!
//! The receiving side writes into a [`Staging`] directory. What arrives is believed only
//! when its length and its hash are those that were promised, when the engine's integrity
//! check finds nothing, and when it is made a replica's: triggers dormant, nothing of the
//! sender's own bookkeeping left. Then it is put in place by one rename.
//!
//! A copy of pages keeps every row id and every byte of every value, which a row-wise copy
//! would have to prove.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use crate::change::Seq;
use crate::disk;
use crate::error::{Error, Result};
use crate::integrity;
use crate::names;
use crate::staging::Staging;
use crate::store::{self, Store};
use crate::triggers;
use crate::view::{ReadView, Reads, read_head};

/// Bytes handed to a sink at a time.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Size and hash of a copied database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    /// Length in bytes.
    pub bytes: u64,
    /// xxh3-128 of all bytes.
    pub hash: u128,
}

/// A database copied into a spool file, ready to be sent at any pace, to any number of
/// receivers.
pub struct Snapshot {
    spool: File,
    content: Content,
    position: Seq,
}

/// A snapshot on its way in.
pub struct Installer {
    staging: Staging,
    file: File,
    hash: Xxh3,
    bytes: u64,
}

/// A snapshot that arrived whole and was checked.
pub struct Checked {
    staging: Staging,
    position: Seq,
}

impl Snapshot {
    /// Copies the database as it is now. Holds a read view for as long as the copy takes
    /// (hundreds of megabytes a second), and needs as much free space as the database has.
    pub fn take(store: &Store) -> Result<Self> {
        Self::take_unless(store, &|| false)
    }

    /// The same, given up between two chunks when `stop` says so.
    pub fn take_unless(store: &Store, stop: &dyn Fn() -> bool) -> Result<Self> {
        let mut reader = store.reader()?;
        let mut view = ReadView::begin_long(&mut reader, store.gate())?;
        let expected = page_size(&mut view)? as u64 * page_count(&mut view)?;
        disk::require_space(store.dir(), expected)?;
        let mut spool = unnamed_file(store.dir())?;
        let content = copy_pages(&mut view, &mut |chunk| match stop() {
            true => Err(Error::Closed),
            false => Ok(spool.write_all(chunk)?),
        })?;
        Ok(Self {
            spool,
            content,
            position: view.head(),
        })
    }

    /// Size and hash.
    pub fn content(&self) -> Content {
        self.content
    }

    /// The position of the copied state.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// Reads from a place in the copy; 0 at its end. Safe from several threads.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.content.bytes.saturating_sub(offset);
        let wanted = buffer
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        self.spool.read_exact_at(&mut buffer[..wanted], offset)?;
        Ok(wanted)
    }
}

/// Hands every page of the view's snapshot to `sink`, in chunks of [`CHUNK_BYTES`].
pub fn copy_pages(
    view: &mut ReadView<'_>,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Content> {
    let page_size = page_size(view)?;
    let pages = page_count(view)?;
    let pages = u32::try_from(pages)
        .map_err(|_| Error::Corrupt(format!("{pages} pages are more than a file can have")))?;
    let watermark = view.watermark()?;
    let mut chunk = vec![0; CHUNK_BYTES.max(page_size)];
    let mut filled = 0;
    let mut hash = Xxh3::new();
    for page in 1..=pages {
        let target = &mut chunk[filled..filled + page_size];
        if !view.read_page(page, watermark, target)? {
            // Never written: the page of SQLite's lock bytes, or one that was free from the
            // start. If it was neither, the receiver's integrity check finds it.
            target.fill(0);
        }
        filled += page_size;
        if filled + page_size > chunk.len() || page == pages {
            hash.update(&chunk[..filled]);
            sink(&chunk[..filled])?;
            filled = 0;
        }
    }
    Ok(Content {
        bytes: u64::from(pages) * page_size as u64,
        hash: hash.digest128(),
    })
}

impl Installer {
    /// Makes room for a snapshot beside the database it will replace. The store of this
    /// directory may be open, but must not be opened anew before the snapshot is installed.
    pub fn begin(data_dir: &Path, expected_bytes: u64) -> Result<Self> {
        let staging = Staging::begin(data_dir, expected_bytes)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(staging.database_path())?;
        Ok(Self {
            staging,
            file,
            hash: Xxh3::new(),
            bytes: 0,
        })
    }

    /// Bytes received so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a chunk of any length.
    pub fn write(&mut self, chunk: &[u8]) -> Result<()> {
        self.file.write_all(chunk)?;
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    /// Checks what has arrived and makes it a replica's database. Reads the whole file.
    pub fn finish(self, expected: Content) -> Result<Checked> {
        let arrived = Content {
            bytes: self.bytes,
            hash: self.hash.digest128(),
        };
        if arrived != expected {
            return Err(Error::Format(format!(
                "the snapshot is not what was sent: {} of {} bytes, hash {:032x} instead of {:032x}",
                arrived.bytes, expected.bytes, arrived.hash, expected.hash
            )));
        }
        self.file.sync_all()?;
        drop(self.file);
        let position = make_replica(&self.staging)?;
        Ok(Checked {
            staging: self.staging,
            position,
        })
    }
}

impl Checked {
    /// The position that the snapshot brings.
    pub fn position(&self) -> Seq {
        self.position
    }

    /// Puts the snapshot in the place of the database. The store of this directory must have
    /// been dropped by everybody.
    pub fn install(self) -> Result<()> {
        self.staging.install()
    }
}

/// Opens the received file, checks it, and leaves it closed and complete.
fn make_replica(staging: &Staging) -> Result<Seq> {
    let store = Store::open_received(staging.dir())?;
    let mut reader = store.reader()?;
    let found = integrity::check(&mut reader)?;
    if !found.is_ok() {
        return Err(Error::Corrupt(format!(
            "the snapshot fails the integrity check: {}",
            found.summary()
        )));
    }
    let position = read_head(&mut reader)?;
    drop(reader);
    let mut connection = store.internal()?;
    connection.execute("BEGIN IMMEDIATE", &[])?;
    triggers::put_to_sleep(&mut connection)?;
    let forget_followers = format!("DELETE FROM {}", names::SLOTS_TABLE);
    connection.execute(&forget_followers, &[])?;
    connection.execute("COMMIT", &[])?;
    drop(connection);
    store.close()?;
    Ok(position)
}

fn page_size(source: &mut impl Reads) -> Result<usize> {
    let size = pragma(source, "page_size")?;
    usize::try_from(size).map_err(|_| Error::Corrupt(format!("a page size of {size}")))
}

fn page_count(source: &mut impl Reads) -> Result<u64> {
    let count = pragma(source, "page_count")?;
    u64::try_from(count).map_err(|_| Error::Corrupt(format!("a page count of {count}")))
}

fn pragma(source: &mut impl Reads, name: &str) -> Result<i64> {
    let mut value = 0;
    source.read(&format!("PRAGMA {name}"), &[], |row| {
        value = row.integer(0)?;
        Ok(())
    })?;
    Ok(value)
}

/// A file that goes away with its last handle.
fn unnamed_file(dir: &Path) -> Result<File> {
    let path = dir.join(format!("outgoing-{:016x}", store::nonce()?));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}
