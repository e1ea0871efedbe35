//! The file as it came: what lies beside it, and a copy that may be worked on.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Objection;
use crate::error::{Error, Result};
use crate::names;
use crate::sqlite_file::{self, Header, SchemaRow};
use crate::statement_gate::SchemaFacts;

/// First bytes of a rollback journal that was not finished.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const WAL_MODE: u8 = 2;
const WAL_HEADER_BYTES: u64 = 32;

/// The file, held against writers while it is copied.
pub(super) struct Original {
    path: PathBuf,
    _held: File,
    header: Option<Header>,
    stamps: [Option<Stamp>; 2],
}

/// The copy, and what the file said before the engine saw it.
pub(super) struct Copied {
    pub path: PathBuf,
    pub bytes: u64,
    pub log_bytes: u64,
    pub header: Option<Header>,
}

/// A file that was written to meanwhile shows it here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: SystemTime,
}

impl Original {
    /// Looks at the file and at what lies beside it. Fails when it is no database, when
    /// another program has it open, or when its last transaction was never finished.
    pub fn open(path: &Path) -> Result<Self> {
        let held = hold(path)?;
        let header = Header::read(&held).map_err(|error| not_a_database(path, &error))?;
        refuse_hot_journal(path)?;
        let stamps = stamps(path)?;
        Ok(Self {
            path: path.to_owned(),
            _held: held,
            header,
            stamps,
        })
    }

    /// Size of the file and of its log.
    pub fn bytes(&self) -> u64 {
        self.stamps.iter().flatten().map(|s| s.bytes).sum()
    }

    /// Copies the file and a log that belongs to it. The shared memory beside a log is an
    /// index of it, made anew by whoever opens the copy.
    pub fn copy_to(&self, copy: &Path) -> Result<Copied> {
        copy_file(&self.path, copy)?;
        let log_bytes = match self.stamps[1] {
            Some(log) if self.uses_log() && log.bytes > WAL_HEADER_BYTES => {
                copy_file(&beside(&self.path, "-wal"), &beside(copy, "-wal"))?;
                log.bytes
            }
            _ => 0,
        };
        if stamps(&self.path)? != self.stamps {
            return Err(Error::refused(
                "file_in_use",
                format!(
                    "{} changed while it was copied; stop whatever writes to it",
                    self.path.display()
                ),
            ));
        }
        Ok(Copied {
            path: copy.to_owned(),
            bytes: self.bytes(),
            log_bytes,
            header: self.header.clone(),
        })
    }

    /// SQLite ignores a log beside a file that is not in WAL mode, and so do we.
    fn uses_log(&self) -> bool {
        self.header
            .as_ref()
            .is_some_and(|h| h.write_version == WAL_MODE)
    }
}

impl Copied {
    /// What speaks against the file before it is opened: the header, then each object of the
    /// schema. With a log to recover the schema in the main file may be an old one; it is
    /// looked at through the engine then.
    pub fn objections(&self) -> Vec<Objection> {
        let Some(header) = &self.header else {
            return Vec::new();
        };
        let objections = header_objections(header);
        if !objections.is_empty() || self.log_bytes > 0 {
            return objections;
        }
        let rows = File::open(&self.path)
            .map_err(Error::from)
            .and_then(|file| sqlite_file::schema_rows(&file, header));
        match rows {
            Ok(rows) => schema_objections(&rows),
            Err(error) => vec![super::contents::unreadable("the schema", &error)],
        }
    }
}

/// What in a schema would not replicate.
pub(super) fn schema_objections(rows: &[SchemaRow]) -> Vec<Objection> {
    let mut objections = Vec::new();
    if rows.iter().any(|r| names::same(&r.name, names::META_TABLE)) {
        objections.push(object(
            names::META_TABLE,
            "tidegate_file",
            "this is a database of Tidegate already: use its directory as data directory",
        ));
        return objections;
    }
    for row in rows.iter().filter(|r| names::is_internal(&r.name)) {
        let message = "the name begins like those that Tidegate and the engine keep for \
                       themselves; rename or drop it";
        objections.push(object(&row.name, "internal_table", message));
    }
    let user = rows
        .iter()
        .filter(|r| names::is_user(&r.name) && names::is_user(&r.table));
    let texts = user.filter_map(|r| Some((r.name.clone(), r.sql.clone()?)));
    let texts: Vec<(String, String)> = texts.collect();
    for (name, sql) in &texts {
        if crate::schema::has_sized_integer_key(sql) {
            let message = "INTEGER with a size as primary key is the row id for the engine but \
                           not for SQLite, which made the file; declare it INTEGER PRIMARY KEY \
                           in a new table and copy the rows";
            objections.push(object(name, "sized_integer_key", message));
        }
    }
    objections.extend(without_shadows(SchemaFacts::from_texts(texts).objections()));
    objections
}

/// A virtual table keeps its contents in tables of its own, `name_data` and so on. Who drops
/// the one drops the others.
fn without_shadows(all: &[Objection]) -> impl Iterator<Item = Objection> {
    let is_shadow = |o: &Objection| {
        let mut of_virtual = all.iter().filter(|v| v.reason == "virtual_table");
        of_virtual.any(|v| o.object.starts_with(&format!("{}_", v.object)))
    };
    all.iter().filter(move |o| !is_shadow(o)).cloned()
}

fn header_objections(header: &Header) -> Vec<Objection> {
    let mut objections = Vec::new();
    let mut say = |is_so: bool, reason, message: &str| {
        if is_so {
            objections.push(object("the file", reason, message));
        }
    };
    say(
        header.encoding > 1,
        "encoding",
        "its text is UTF-16 and the engine reads UTF-8 only; dump it into a new file with \
         `sqlite3 OLD .dump | sqlite3 NEW`",
    );
    say(
        header.auto_vacuum,
        "auto_vacuum",
        "it is in auto_vacuum mode, which the engine only reads; run `PRAGMA auto_vacuum = 0; \
         VACUUM;` with sqlite3 first",
    );
    say(
        !matches!(header.schema_format, 0 | 4),
        "schema_format",
        "it has a schema format from before SQLite 3.3, in which descending indexes mean \
         something else; run `VACUUM` with a current sqlite3 first",
    );
    say(
        header.reserved_bytes != 0,
        "reserved_bytes",
        "its pages end in bytes of an extension (checksums or encryption) that would not be \
         kept up; copy it with that extension into a plain file first",
    );
    let versions = [header.read_version, header.write_version];
    say(
        !matches!(versions, [1, 1] | [2, 2]),
        "file_version",
        "its header asks for a version of the file format that is not known",
    );
    objections
}

/// Asks for the lock that every program that uses the file holds in some form. An idle
/// program in rollback mode holds none; changes are noticed by [`Stamp`] too.
fn hold(path: &Path) -> Result<File> {
    use rustix::fs::{FlockOperation, fcntl_lock};
    let unreadable = |e: std::io::Error| Error::Io(format!("cannot read {}: {e}", path.display()));
    let (file, lock) = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => (file, FlockOperation::NonBlockingLockExclusive),
        Err(_) => {
            let file = File::open(path).map_err(unreadable)?;
            (file, FlockOperation::NonBlockingLockShared)
        }
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Error::Io(format!("{} is not a file", path.display())));
    }
    fcntl_lock(&file, lock).map_err(|_| {
        Error::refused(
            "file_in_use",
            format!(
                "{} is open in another program; close it there first",
                path.display()
            ),
        )
    })?;
    Ok(file)
}

fn refuse_hot_journal(path: &Path) -> Result<()> {
    let journal = beside(path, "-journal");
    let Ok(bytes) = read_start(&journal) else {
        return Ok(());
    };
    if bytes != JOURNAL_MAGIC {
        // Emptied or overwritten with zeros: how a finished journal may be left.
        return Ok(());
    }
    Err(Error::refused(
        "hot_journal",
        format!(
            "{} belongs to a transaction that was never finished, and only SQLite can undo it: \
             open the file once with `sqlite3 {} .tables` and import it then",
            journal.display(),
            path.display()
        ),
    ))
}

fn read_start(path: &Path) -> Result<[u8; 8]> {
    use std::os::unix::fs::FileExt;
    let mut start = [0; 8];
    File::open(path)?.read_exact_at(&mut start, 0)?;
    Ok(start)
}

fn not_a_database(path: &Path, error: &Error) -> Error {
    Error::refused(
        "not_a_database",
        format!(
            "{} is no SQLite database, or an encrypted one: {error}",
            path.display()
        ),
    )
}

fn stamps(path: &Path) -> Result<[Option<Stamp>; 2]> {
    let main = stamp(path)?;
    Ok([Some(main), stamp(&beside(path, "-wal")).ok()])
}

fn stamp(path: &Path) -> Result<Stamp> {
    let found = std::fs::metadata(path)?;
    Ok(Stamp {
        bytes: found.len(),
        modified: found.modified()?,
    })
}

/// The copy belongs to us, whatever the original's permissions.
fn copy_file(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn object(object: &str, reason: &'static str, message: &str) -> Objection {
    Objection {
        object: object.to_owned(),
        reason,
        message: message.to_owned(),
    }
}
