//! How a prepared database takes the place of the old one.
//!
//! A database that comes from elsewhere (a snapshot, an imported file) is made ready in a
//! directory of its own and moved into place when it is proven whole. At any moment a crash
//! leaves the old database or the new one: never half a copy, and above all never the new
//! file beside the write-ahead log of the old one, which the engine would replay into it.
//!
//! ```text
//! incoming-<nonce>/tidegate.db      being prepared; whatever is here is garbage after a crash
//!         │  everything is synced, then one rename decides:
//! installing/tidegate.db            the new database. From here on a crash is rolled forward:
//!         │  1  remove tidegate.db-wal and other companions of the old file
//!         │  2  remove high-water: it speaks of the old file
//!         │  3  rename installing/tidegate.db to tidegate.db
//!         ▼  4  remove installing/
//! tidegate.db
//! ```
//!
//! The directory is synced after each step. Steps are repeatable, and run again from the
//! first one at the next start ([`complete`]). Step 1 can never meet the log of the *new*
//! file, because nobody opens a database before step 4 is done.

use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::{Error, Result};
use crate::high_water::HIGH_WATER_FILE;
use crate::store::{self, DATABASE_FILE};

const INCOMING_PREFIX: &str = "incoming-";
const INSTALLING_DIR: &str = "installing";

/// A directory in which a database is made ready. Removed when dropped before it is
/// installed.
pub struct Staging {
    data_dir: PathBuf,
    dir: PathBuf,
}

impl Staging {
    /// Makes the directory, beside the database that is to be replaced or made. Fails when
    /// `bytes` would not fit on the file system.
    pub fn begin(data_dir: &Path, bytes: u64) -> Result<Self> {
        store::create_dir(data_dir)?;
        disk::require_space(data_dir, bytes)?;
        let dir = data_dir.join(format!("{INCOMING_PREFIX}{:016x}", store::nonce()?));
        store::create_dir(&dir)?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            dir,
        })
    }

    /// The directory; a data directory of its own while the database is made ready.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the database is made ready.
    pub fn database_path(&self) -> PathBuf {
        self.dir.join(DATABASE_FILE)
    }

    /// Puts the database in the place of the old one. The file must be closed and complete
    /// without a write-ahead log, and nobody may have the data directory open.
    pub fn install(self) -> Result<()> {
        let _lock = store::lock_dir(&self.data_dir)?;
        complete(&self.data_dir)?;
        self.decide()?;
        complete(&self.data_dir)
    }

    /// The step that decides: before it the old database stands, after it the new one.
    fn decide(&self) -> Result<()> {
        require_no_log(&self.database_path())?;
        std::fs::File::open(self.database_path())?.sync_all()?;
        disk::sync_dir(&self.dir)?;
        std::fs::rename(&self.dir, self.data_dir.join(INSTALLING_DIR))?;
        disk::sync_dir(&self.data_dir)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Gone already when it was installed; at worst the next start removes it.
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// Finishes an installation that was decided before. Does nothing where there is none. The
/// caller holds the directory's lock, and has not opened the database.
pub fn complete(data_dir: &Path) -> Result<()> {
    complete_steps(data_dir, STEPS.len())
}

/// Removes databases that were never made ready. Half a snapshot is never a database. The
/// caller holds the directory's lock.
pub fn remove_incoming(data_dir: &Path) -> Result<()> {
    remove_matching(data_dir, |name| name.starts_with(INCOMING_PREFIX))
}

const STEPS: [fn(&Path) -> Result<()>; 4] = [
    remove_companions,
    remove_high_water,
    move_database,
    remove_installing,
];

fn complete_steps(data_dir: &Path, count: usize) -> Result<()> {
    if !data_dir.join(INSTALLING_DIR).exists() {
        return Ok(());
    }
    for step in &STEPS[..count] {
        step(data_dir)?;
        disk::sync_dir(data_dir)?;
    }
    Ok(())
}

/// Whatever lies beside the old file under its name: write-ahead log, shared memory,
/// journal.
fn remove_companions(data_dir: &Path) -> Result<()> {
    let prefix = format!("{DATABASE_FILE}-");
    remove_matching(data_dir, |name| name.starts_with(&prefix))
}

fn remove_high_water(data_dir: &Path) -> Result<()> {
    remove_matching(data_dir, |name| name.starts_with(HIGH_WATER_FILE))
}

fn move_database(data_dir: &Path) -> Result<()> {
    let from = data_dir.join(INSTALLING_DIR).join(DATABASE_FILE);
    if from.exists() {
        std::fs::rename(from, data_dir.join(DATABASE_FILE))?;
    }
    Ok(())
}

fn remove_installing(data_dir: &Path) -> Result<()> {
    Ok(std::fs::remove_dir_all(data_dir.join(INSTALLING_DIR))?)
}

fn remove_matching(data_dir: &Path, matches: impl Fn(&str) -> bool) -> Result<()> {
    for entry in std::fs::read_dir(data_dir)? {
        let entry = entry?;
        if matches(&entry.file_name().to_string_lossy()) {
            if entry.file_type()?.is_dir() {
                std::fs::remove_dir_all(entry.path())?;
            } else {
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

/// A file with a log beside it is not the whole database.
fn require_no_log(database: &Path) -> Result<()> {
    let log = format!("{}-wal", database.display());
    match std::fs::metadata(&log) {
        Ok(found) if found.len() > 0 => Err(Error::Fatal(format!(
            "{log} still holds {} bytes: the database beside it is not complete",
            found.len()
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn with_rows(dir: &Path, value: i64) -> Store {
        let store = Store::open(dir).expect("a store");
        let mut connection = store.internal().expect("a connection");
        for sql in [
            "CREATE TABLE t (v)".to_owned(),
            format!("INSERT INTO t VALUES ({value})"),
        ] {
            connection.execute(&sql, &[]).expect("a statement");
        }
        store
    }

    fn value_in(dir: &Path) -> Option<i64> {
        let store = Store::open(dir).expect("a database that opens");
        let mut reader = store.reader().expect("a reader");
        assert!(
            crate::integrity::check(&mut reader)
                .expect("a check")
                .is_ok()
        );
        reader
            .query_integer("SELECT v FROM t", &[])
            .expect("the row")
    }

    /// An old database whose log was never checkpointed, and a new one made ready.
    fn old_and_new(data_dir: &Path) -> Staging {
        drop(with_rows(data_dir, 1));
        let log = std::fs::metadata(data_dir.join("tidegate.db-wal")).expect("a log");
        assert!(
            log.len() > 0,
            "the old database was left as a crash leaves it"
        );
        std::fs::write(data_dir.join(HIGH_WATER_FILE), "9").expect("a mark");
        let staging = Staging::begin(data_dir, 0).expect("a staging directory");
        let store = with_rows(staging.dir(), 2);
        store.close().expect("closed");
        staging
    }

    #[test]
    fn a_crash_before_the_deciding_rename_leaves_the_old_database_with_its_log() {
        let dir = tempfile::tempdir().expect("a directory");
        std::mem::forget(old_and_new(dir.path()));
        assert_eq!(value_in(dir.path()), Some(1));
        assert!(dir.path().join(HIGH_WATER_FILE).exists());
        let left = std::fs::read_dir(dir.path()).expect("a listing");
        let mut names = left.map(|e| e.expect("an entry").file_name());
        assert!(!names.any(|n| n.to_string_lossy().starts_with(INCOMING_PREFIX)));
    }

    #[test]
    fn a_crash_after_any_later_step_leaves_the_new_database_without_the_old_log() {
        for steps in 0..=STEPS.len() {
            let dir = tempfile::tempdir().expect("a directory");
            let staging = old_and_new(dir.path());
            staging.decide().expect("decided");
            complete_steps(dir.path(), steps).expect("the steps before the crash");
            assert_eq!(value_in(dir.path()), Some(2), "crash after step {steps}");
            assert!(!dir.path().join(INSTALLING_DIR).exists());
            assert!(!dir.path().join(HIGH_WATER_FILE).exists());
        }
    }

    #[test]
    fn an_installed_database_writes_its_own_log_in_its_new_place() {
        let dir = tempfile::tempdir().expect("a directory");
        old_and_new(dir.path()).install().expect("installed");
        let store = Store::open(dir.path()).expect("a store");
        let mut connection = store.internal().expect("a connection");
        connection
            .execute("UPDATE t SET v = 3", &[])
            .expect("a write");
        let log = std::fs::metadata(dir.path().join("tidegate.db-wal")).expect("a log");
        assert!(log.len() > 0);
        drop((connection, store));
        assert_eq!(value_in(dir.path()), Some(3));
    }

    #[test]
    fn an_empty_directory_takes_a_database() {
        let dir = tempfile::tempdir().expect("a directory");
        let empty = dir.path().join("new");
        let staging = Staging::begin(&empty, 0).expect("a staging directory");
        with_rows(staging.dir(), 2).close().expect("closed");
        staging.install().expect("installed");
        assert_eq!(value_in(&empty), Some(2));
    }

    #[test]
    fn a_directory_in_use_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let staging = old_and_new(dir.path());
        let lock = store::lock_dir(dir.path()).expect("the lock");
        let error = staging.install().expect_err("in use").to_string();
        assert!(error.contains("is in use by process"), "{error}");
        drop(lock);
        assert_eq!(value_in(dir.path()), Some(1));
    }

    #[test]
    fn a_prepared_file_with_a_log_beside_it_is_not_installed() {
        let dir = tempfile::tempdir().expect("a directory");
        let staging = Staging::begin(dir.path(), 0).expect("a staging directory");
        drop(with_rows(staging.dir(), 2));
        let error = staging.install().expect_err("not complete").to_string();
        assert!(error.contains("tidegate.db-wal"), "{error}");
    }
}
