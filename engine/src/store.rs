//! A data directory: the lock, the database file, the internal tables, and the one factory
//! of connections.
//!
//! ```text
//! data_dir/
//!   LOCK              held by flock while a process uses the directory; holds its pid
//!   tidegate.db       the database
//!   tidegate.db-wal   its write-ahead log
//!   high-water        highest durable position, see `high_water`
//!   incoming-*        a database being prepared; removed at start, see `staging`
//!   installing        a prepared database on its way in; completed at start
//! ```
//!
//! Every connection is made here and nowhere else, because a connection that forgets the
//! capture setting writes rows that no replica ever sees. There are four kinds:
//!
//! | kind | writes | capture | foreign keys | used by |
//! |---|---|---|---|---|
//! | [`Store::reader`] | refused by the engine | off | – | readers, tail, digest, snapshot |
//! | [`Store::capturing`] | user data | `id`, read back | as asked | the writer, transactions |
//! | [`Store::internal`] | node-local tables only | off | off | trim, floor, slots |
//! | [`Store::applying`] | batches | off | off, checks off | the applier |

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::adapter::{CaptureSetting, Connection, Database};
use crate::error::{Error, Result};
use crate::gate::ReadGate;
use crate::names;
use crate::staging;

/// Name of the database file inside a data directory.
pub const DATABASE_FILE: &str = "tidegate.db";
/// Version of the internal tables. A directory of another version is not opened.
pub const FORMAT_VERSION: i64 = 1;

/// Page cache of a connection, in KiB, set explicitly: the engine's own default is 7.6 MB
/// and is never given back.
const CACHE_KIB_DEFAULT: u32 = 2_000;

/// How durable a commit is when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// One fsync for each commit.
    #[default]
    Full,
    /// fsync at checkpoints only. For tests and for nodes that replicate with `ack >= 1`.
    Normal,
}

/// An open data directory.
pub struct Store {
    dir: PathBuf,
    database: Database,
    synchronous: Synchronous,
    cache_kib: u32,
    gate: Arc<ReadGate>,
    turn: Arc<Mutex<()>>,
    capture: OnceLock<CaptureSetting>,
    /// Dropped last: the lock outlives the database.
    _lock: File,
}

impl Store {
    /// Opens, or creates, a data directory with default settings.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::open_with(dir, Synchronous::Full, CACHE_KIB_DEFAULT)
    }

    /// Opens, or creates, a data directory. Fails when another process holds it (the message
    /// names its pid), when the file is not in WAL mode, or when its format is unknown.
    pub fn open_with(dir: &Path, synchronous: Synchronous, cache_kib: u32) -> Result<Self> {
        create_dir(dir)?;
        let lock = lock_dir(dir)?;
        staging::complete(dir)?;
        staging::remove_incoming(dir)?;
        let database = Database::open(&dir.join(DATABASE_FILE))?;
        let store = Self {
            dir: dir.to_owned(),
            database,
            synchronous,
            cache_kib,
            gate: Arc::new(ReadGate::new()),
            turn: Arc::default(),
            capture: OnceLock::new(),
            _lock: lock,
        };
        store.prepare_internal_tables()?;
        Ok(store)
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the database file.
    pub fn database_path(&self) -> PathBuf {
        self.dir.join(DATABASE_FILE)
    }

    /// The gate that every read transaction passes, so that a checkpoint can drain them.
    pub fn gate(&self) -> &Arc<ReadGate> {
        &self.gate
    }

    /// Whoever writes on a node without a writer thread holds this: the applier for a batch,
    /// the node's own work between two of them. So neither meets the other in the engine's lock.
    pub(crate) fn turn(&self) -> &Arc<Mutex<()>> {
        &self.turn
    }

    /// Opens a directory that holds a database of ours and nothing else yet, so that a file
    /// without internal tables is an error and not a new database.
    pub(crate) fn open_received(dir: &Path) -> Result<Self> {
        let mut connection = Database::open(&dir.join(DATABASE_FILE))?.connect()?;
        let ours = table_exists(&mut connection, names::META_TABLE)?;
        drop(connection);
        if ours {
            Self::open(dir)
        } else {
            Err(Error::Format(
                "the file holds no database of Tidegate".into(),
            ))
        }
    }

    /// Moves the write-ahead log into the database and closes it, so that the file alone is
    /// the database. Nobody may still hold a connection.
    pub fn close(self) -> Result<()> {
        let mut connection = self.internal()?;
        let outcome = connection.checkpoint_truncate()?;
        connection.close()?;
        if outcome.complete && self.database.is_unshared() {
            Ok(())
        } else {
            Err(Error::Busy)
        }
    }

    /// A connection that can only read.
    pub fn reader(&self) -> Result<Connection> {
        let mut connection = self.bare()?;
        connection.execute("PRAGMA query_only = 1", &[])?;
        Ok(connection)
    }

    /// A connection whose writes are captured. The setting is read back.
    pub fn capturing(&self, foreign_keys: bool) -> Result<Connection> {
        let mut connection = self.bare()?;
        self.set_synchronous(&mut connection)?;
        set_foreign_keys(&mut connection, foreign_keys)?;
        match self.capture.get() {
            Some(setting) => connection.set_capture_setting(setting),
            None => self.first_capture(&mut connection)?,
        }
        check_capture(&mut connection, "id")?;
        Ok(connection)
    }

    /// A connection for node-local tables: nothing it writes is captured.
    pub fn internal(&self) -> Result<Connection> {
        let mut connection = self.bare()?;
        self.set_synchronous(&mut connection)?;
        set_foreign_keys(&mut connection, false)?;
        Ok(connection)
    }

    /// A connection for applying batches: no capture, no foreign keys, no checks.
    pub fn applying(&self) -> Result<Connection> {
        let mut connection = self.internal()?;
        connection.execute("PRAGMA ignore_check_constraints = 1", &[])?;
        ensure_log_table(&mut connection)?;
        Ok(connection)
    }

    fn bare(&self) -> Result<Connection> {
        let mut connection = self.database.connect()?;
        connection.set_busy_timeout(Duration::from_secs(5));
        let mode = connection.query_value("PRAGMA journal_mode", &[])?;
        if mode.as_text() != Some("wal") {
            return Err(Error::Fatal(format!(
                "the database is in journal mode {mode:?}; Tidegate replicates in WAL mode only"
            )));
        }
        let cache = format!("PRAGMA cache_size = -{}", self.cache_kib);
        connection.execute(&cache, &[])?;
        Ok(connection)
    }

    /// The PRAGMA takes the engine's write lock, even when the table is there. So it runs
    /// once, and later connections, which may be opened while somebody writes, are given
    /// its result.
    fn first_capture(&self, connection: &mut Connection) -> Result<()> {
        set_capture(connection, "id")?;
        if let Some(setting) = connection.capture_setting() {
            self.capture.set(setting).ok();
        }
        Ok(())
    }

    fn set_synchronous(&self, connection: &mut Connection) -> Result<()> {
        let level = match self.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        connection.execute(&format!("PRAGMA synchronous = {level}"), &[])?;
        Ok(())
    }

    /// Creates the internal tables of a new file, or checks the version of an old one.
    fn prepare_internal_tables(&self) -> Result<()> {
        let mut connection = self.internal()?;
        if table_exists(&mut connection, names::META_TABLE)? {
            return check_format(&mut connection);
        }
        connection.execute("BEGIN IMMEDIATE", &[])?;
        for statement in internal_tables() {
            connection.execute(&statement, &[])?;
        }
        connection.execute("COMMIT", &[])?;
        Ok(())
    }
}

/// True when the file holds a table of this name.
pub fn table_exists(connection: &mut Connection, name: &str) -> Result<bool> {
    let found = connection.query_integer(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?",
        &[name.into()],
    )?;
    Ok(found == Some(1))
}

/// Makes the capture table through the engine's own setting (a table made by hand counts as
/// an old version of it) and leaves capture off.
fn ensure_log_table(connection: &mut Connection) -> Result<()> {
    if !table_exists(connection, names::CAPTURE_TABLE)? {
        set_capture(connection, "id")?;
        set_capture(connection, "off")?;
    }
    Ok(())
}

fn set_capture(connection: &mut Connection, mode: &str) -> Result<()> {
    let sql = format!("PRAGMA capture_data_changes_conn('{mode}')");
    connection.execute(&sql, &[])?;
    check_capture(connection, mode)
}

/// Reads the capture setting back.
fn check_capture(connection: &mut Connection, mode: &str) -> Result<()> {
    let mut read_back = None;
    connection.query("PRAGMA capture_data_changes_conn", &[], |row| {
        read_back = row.get(0).as_text().map(str::to_owned);
        Ok(())
    })?;
    if read_back.as_deref() == Some(mode) {
        Ok(())
    } else {
        Err(Error::Fatal(format!(
            "capture was set to {mode} but reads back as {read_back:?}"
        )))
    }
}

fn set_foreign_keys(connection: &mut Connection, on: bool) -> Result<()> {
    let value = i64::from(on);
    connection.execute(&format!("PRAGMA foreign_keys = {value}"), &[])?;
    let read_back = connection.query_integer("PRAGMA foreign_keys", &[])?;
    if read_back == Some(value) {
        Ok(())
    } else {
        Err(Error::Fatal(format!(
            "foreign_keys was set to {value} but reads back as {read_back:?}"
        )))
    }
}

fn internal_tables() -> Vec<String> {
    let table = |name: &str, body: &str| format!("CREATE TABLE {name} ({body})");
    vec![
        table(names::META_TABLE, "key TEXT PRIMARY KEY, value NOT NULL"),
        table(
            names::DDL_TABLE,
            "id INTEGER PRIMARY KEY, sql TEXT NOT NULL",
        ),
        table(
            names::HISTORY_TABLE,
            "id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, nonce BLOB NOT NULL, \
             first_seq INTEGER NOT NULL, node TEXT NOT NULL, opened_ms INTEGER NOT NULL, \
             why TEXT NOT NULL",
        ),
        table(
            names::KEYS_TABLE,
            "to_seq INTEGER PRIMARY KEY, from_seq INTEGER NOT NULL, keys BLOB NOT NULL",
        ),
        table(
            names::DORMANT_TABLE,
            "ordinal INTEGER PRIMARY KEY, name TEXT NOT NULL, sql TEXT NOT NULL",
        ),
        table(
            names::TICK_TABLE,
            "id INTEGER PRIMARY KEY, n INTEGER NOT NULL",
        ),
        table(
            names::SLOTS_TABLE,
            "node TEXT PRIMARY KEY, applied_seq INTEGER NOT NULL, seen_ms INTEGER NOT NULL, \
             state TEXT NOT NULL",
        ),
        format!("INSERT INTO {} (id, n) VALUES (1, 0)", names::TICK_TABLE),
        format!(
            "INSERT INTO {} (key, value) VALUES ('format', {FORMAT_VERSION})",
            names::META_TABLE
        ),
    ]
}

fn check_format(connection: &mut Connection) -> Result<()> {
    let sql = format!(
        "SELECT value FROM {} WHERE key = 'format'",
        names::META_TABLE
    );
    match connection.query_integer(&sql, &[])? {
        Some(FORMAT_VERSION) => Ok(()),
        other => Err(Error::Format(format!(
            "the internal tables have format {other:?}; this version of Tidegate knows \
             {FORMAT_VERSION}. Use the version that wrote them, or a snapshot"
        ))),
    }
}

/// Creates a directory that only this user may enter.
pub(crate) fn create_dir(dir: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| Error::Io(format!("cannot create {}: {e}", dir.display())))
}

/// A number that no other file name of this directory holds.
pub(crate) fn nonce() -> Result<u64> {
    let mut nonce = [0; 8];
    getrandom::fill(&mut nonce).map_err(|e| Error::Io(format!("no random bytes: {e}")))?;
    Ok(u64::from_le_bytes(nonce))
}

/// Takes the directory for this process; released when the file is dropped.
pub(crate) fn lock_dir(dir: &Path) -> Result<File> {
    let path = dir.join("LOCK");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|e| Error::Io(format!("cannot open {}: {e}", path.display())))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            file.read_to_string(&mut pid).ok();
            return Err(Error::Io(format!(
                "{} is in use by process {}; stop it, or choose another data directory",
                dir.display(),
                pid.trim()
            )));
        }
        Err(TryLockError::Error(e)) => {
            return Err(Error::Io(format!("cannot lock {}: {e}", path.display())));
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}
