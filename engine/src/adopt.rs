//! Taking over a SQLite file that somebody else made.
//!
//! Rows that are already in a file were never captured, so nothing of what follows in this
//! system protects them from a property that would not replicate. A file is therefore
//! examined before it becomes a database of ours, and what it holds is either kept exactly or
//! named: a list of objections, all of them, with what to do about each.
//!
//! The file itself is not touched. Everything happens on a copy, because the engine rewrites
//! the header of a file that is not in WAL mode when it merely opens it, and because a
//! write-ahead log beside the file has to be recovered. A hot rollback journal cannot be: only
//! SQLite can play it back, so that file is refused with the sentence that says how.
//!
//! An accepted copy gets the internal tables, is checked, and is put into an empty data
//! directory by one rename. Its rows have no log: the floor that the first opening sets says
//! so, and replicas start from a snapshot.

use std::path::{Path, PathBuf};

use crate::adapter::Database;
use crate::error::{Error, Result};
use crate::staging::Staging;
pub use crate::statement_gate::Objection;
use crate::store::{self, DATABASE_FILE, Store};

mod contents;
mod original;

pub use contents::{BrokenReference, TableCount};
use original::{Copied, Original};

/// What was found in a file.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The file.
    pub path: PathBuf,
    /// Its size, that of a write-ahead log beside it included.
    pub bytes: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a write-ahead log that was recovered into the copy.
    pub log_bytes: u64,
    /// Tables with their rows. Empty when objections kept the file from being opened.
    pub tables: Vec<TableCount>,
    /// What would not replicate. The file is taken only when there is nothing here.
    pub objections: Vec<Objection>,
    /// Foreign keys that point nowhere. They are kept as they are.
    pub broken_references: Vec<BrokenReference>,
}

impl Report {
    /// True when the file can be taken over.
    pub fn is_acceptable(&self) -> bool {
        self.objections.is_empty()
    }

    /// Rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.iter().map(|t| t.rows).sum()
    }
}

/// Examines a file without taking it over. Needs space for a copy in the directory for
/// temporary files.
pub fn inspect(path: &Path) -> Result<Report> {
    let name = format!("tidegate-inspect-{:016x}", store::nonce()?);
    let scratch = std::env::temp_dir().join(name);
    let outcome = inspect_in(path, &scratch);
    std::fs::remove_dir_all(&scratch).ok();
    outcome
}

/// Examines a file and, when nothing speaks against it, makes it the database of a data
/// directory that has none. Look at [`Report::is_acceptable`]: a file with objections is
/// reported, not taken, and the directory stays as it was.
pub fn import(path: &Path, data_dir: &Path) -> Result<Report> {
    if data_dir.join(DATABASE_FILE).exists() {
        return Err(Error::refused(
            "data_dir_not_empty",
            format!(
                "{} already holds a database; import into an empty directory",
                data_dir.display()
            ),
        ));
    }
    let original = Original::open(path)?;
    let staging = Staging::begin(data_dir, original.bytes())?;
    let copied = original.copy_to(&staging.database_path())?;
    let report = examine(path, &copied)?;
    if report.is_acceptable() {
        Store::open(staging.dir())?.close()?;
        staging.install()?;
    }
    Ok(report)
}

fn inspect_in(path: &Path, scratch: &Path) -> Result<Report> {
    let original = Original::open(path)?;
    let staging = Staging::begin(scratch, original.bytes())?;
    let copied = original.copy_to(&staging.database_path())?;
    examine(path, &copied)
}

fn examine(path: &Path, copied: &Copied) -> Result<Report> {
    let mut report = Report {
        path: path.to_owned(),
        bytes: copied.bytes,
        page_bytes: copied.header.as_ref().map_or(0, |h| h.page_bytes),
        log_bytes: copied.log_bytes,
        objections: copied.objections(),
        ..Report::default()
    };
    if !report.is_acceptable() {
        return Ok(report);
    }
    let opened = Database::open(&copied.path).and_then(|database| database.connect());
    let mut connection = match opened {
        Ok(connection) => connection,
        Err(error) => {
            let whole = "the file";
            report.objections.push(contents::unreadable(whole, &error));
            return Ok(report);
        }
    };
    contents::examine(&mut connection, &mut report)?;
    Ok(report)
}
