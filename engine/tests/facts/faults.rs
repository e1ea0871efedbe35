//! Failing disks, made with an I/O layer of our own: the engine takes one at open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turso::core::io::FileSyncType;
use turso::core::{self as tc, Buffer, Clock, Completion, CompletionError, File, IO, LimboError};

/// What fails, and what was asked of the disk.
#[derive(Default)]
pub struct Disk {
    fail_sync: AtomicBool,
    fail_write: AtomicBool,
    pub syncs: AtomicU64,
}

struct FaultyIo {
    inner: tc::UnixIO,
    disk: Arc<Disk>,
}

struct FaultyFile {
    inner: Arc<dyn File>,
    disk: Arc<Disk>,
}

impl Disk {
    /// A database on this disk.
    pub fn open(self: &Arc<Self>, path: &std::path::Path) -> Arc<tc::Database> {
        let io = Arc::new(FaultyIo {
            inner: tc::UnixIO::new().expect("an I/O layer"),
            disk: self.clone(),
        });
        tc::Database::open_file_with_flags(
            io,
            path.to_str().expect("UTF-8"),
            tc::OpenFlags::default(),
            tc::DatabaseOpts::new(),
            None,
            Arc::new(tc::SqliteDialect),
        )
        .expect("opens")
    }
}

impl Clock for FaultyIo {
    fn current_time_monotonic(&self) -> tc::MonotonicInstant {
        self.inner.current_time_monotonic()
    }

    fn current_time_wall_clock(&self) -> tc::WallClockInstant {
        self.inner.current_time_wall_clock()
    }
}

impl IO for FaultyIo {
    fn open_file(
        &self,
        path: &str,
        flags: tc::OpenFlags,
        direct: bool,
    ) -> tc::Result<Arc<dyn File>> {
        let inner = self.inner.open_file(path, flags, direct)?;
        Ok(Arc::new(FaultyFile {
            inner,
            disk: self.disk.clone(),
        }))
    }

    fn remove_file(&self, path: &str) -> tc::Result<()> {
        self.inner.remove_file(path)
    }
}

impl File for FaultyFile {
    fn lock_file(&self, exclusive: bool) -> tc::Result<()> {
        self.inner.lock_file(exclusive)
    }

    fn unlock_file(&self) -> tc::Result<()> {
        self.inner.unlock_file()
    }

    fn pread(&self, pos: u64, c: Completion) -> tc::Result<Completion> {
        self.inner.pread(pos, c)
    }

    fn pwrite(&self, pos: u64, buffer: Arc<Buffer>, c: Completion) -> tc::Result<Completion> {
        if self.disk.fail_write.load(Ordering::SeqCst) {
            return Err(io_error(std::io::ErrorKind::StorageFull, "pwrite"));
        }
        self.inner.pwrite(pos, buffer, c)
    }

    fn sync(&self, c: Completion, kind: FileSyncType) -> tc::Result<Completion> {
        self.disk.syncs.fetch_add(1, Ordering::SeqCst);
        if self.disk.fail_sync.load(Ordering::SeqCst) {
            return Err(io_error(std::io::ErrorKind::Other, "sync"));
        }
        self.inner.sync(c, kind)
    }

    fn size(&self) -> tc::Result<u64> {
        self.inner.size()
    }

    fn truncate(&self, len: u64, c: Completion) -> tc::Result<Completion> {
        self.inner.truncate(len, c)
    }
}

/// Fact 23.
#[test]
fn the_engine_goes_on_serving_after_a_failed_fsync() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::default());
    let database = disk.open(&dir.path().join("fact.db"));
    let c = database.connect().expect("connects");
    execute(&c, "CREATE TABLE t(x)").expect("a table");
    disk.fail_sync.store(true, Ordering::SeqCst);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        execute(&c, "INSERT INTO t VALUES (1)")
    }));
    let ordinary = matches!(outcome, Ok(Err(_)));
    disk.fail_sync.store(false, Ordering::SeqCst);
    let other = database.connect().expect("connects");
    execute(&other, "INSERT INTO t VALUES (2)").expect("the engine goes on as if nothing was");
    assert!(ordinary, "an ordinary error: {outcome:?}");
}

/// Fact 24.
#[test]
fn a_full_disk_is_a_clean_error_and_the_next_write_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::default());
    let database = disk.open(&dir.path().join("fact.db"));
    let c = database.connect().expect("connects");
    execute(&c, "CREATE TABLE t(x)").expect("a table");
    execute(&c, "INSERT INTO t VALUES (1)").expect("a row");
    disk.fail_write.store(true, Ordering::SeqCst);
    execute(&c, "INSERT INTO t VALUES (2)").expect_err("no space");
    disk.fail_write.store(false, Ordering::SeqCst);
    execute(&c, "INSERT INTO t VALUES (3)").expect("space again");
    assert_eq!(first_integer(&c, "SELECT sum(x) FROM t"), 4);
    let ok = "SELECT count(*) FROM t WHERE x IN (1, 3)";
    assert_eq!(first_integer(&c, ok), 2);
    assert_eq!(first_text(&c, "PRAGMA integrity_check"), "ok");
}

/// Fact 40.
#[test]
fn full_syncs_each_commit_and_normal_does_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::default());
    let database = disk.open(&dir.path().join("fact.db"));
    let c = database.connect().expect("connects");
    execute(&c, "CREATE TABLE t(x)").expect("a table");
    let syncs = |level: &str| {
        execute(&c, &format!("PRAGMA synchronous = {level}")).expect("accepted");
        let before = disk.syncs.load(Ordering::SeqCst);
        for _ in 0..10 {
            execute(&c, "INSERT INTO t VALUES (1)").expect("a row");
        }
        disk.syncs.load(Ordering::SeqCst) - before
    };
    assert_eq!(syncs("FULL"), 10);
    assert_eq!(syncs("NORMAL"), 0);
    assert_eq!(syncs("OFF"), 0);
}

/// Fact 43, the fsync.
#[test]
fn a_write_without_effect_syncs_in_autocommit_while_capturing() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = Arc::new(Disk::default());
    let database = disk.open(&dir.path().join("fact.db"));
    let c = database.connect().expect("connects");
    execute(&c, "PRAGMA capture_data_changes_conn('id')").expect("captures");
    execute(&c, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)").expect("a table");
    let run_each = |statements: &[&str]| {
        for sql in statements {
            execute(&c, sql).expect("runs");
        }
    };
    let syncs = |statements: &[&str]| {
        let before = disk.syncs.load(Ordering::SeqCst);
        run_each(statements);
        disk.syncs.load(Ordering::SeqCst) - before
    };
    assert_eq!(syncs(&["UPDATE t SET x = 1 WHERE id = 9"]), 1);
    // The first transaction after an empty commit still syncs what that one left.
    run_each(&["BEGIN IMMEDIATE", "COMMIT"]);
    assert_eq!(
        syncs(&[
            "BEGIN IMMEDIATE",
            "UPDATE t SET x = 1 WHERE id = 9",
            "COMMIT"
        ]),
        0
    );
}

fn io_error(kind: std::io::ErrorKind, call: &'static str) -> LimboError {
    LimboError::CompletionError(CompletionError::IOError(kind, call))
}

fn execute(c: &Arc<tc::Connection>, sql: &str) -> tc::Result<()> {
    let mut statement = c.prepare(sql)?;
    step_to_end(&mut statement, |_| ())
}

fn first_integer(c: &Arc<tc::Connection>, sql: &str) -> i64 {
    let mut statement = c.prepare(sql).expect("prepares");
    let mut found = None;
    step_to_end(&mut statement, |row| {
        if let tc::Value::Numeric(tc::Numeric::Integer(i)) = row.get_value(0) {
            found.get_or_insert(*i);
        }
    })
    .expect("runs");
    found.expect("an integer")
}

fn first_text(c: &Arc<tc::Connection>, sql: &str) -> String {
    let mut statement = c.prepare(sql).expect("prepares");
    let mut found = None;
    step_to_end(&mut statement, |row| {
        found.get_or_insert(row.get_value(0).to_string());
    })
    .expect("runs");
    found.expect("a text")
}

fn step_to_end(statement: &mut tc::Statement, mut each: impl FnMut(&tc::Row)) -> tc::Result<()> {
    loop {
        match statement.step()? {
            tc::StepResult::Done => return Ok(()),
            tc::StepResult::Row => each(statement.row().expect("a row")),
            tc::StepResult::IO | tc::StepResult::Yield => statement._io().step()?,
            other => panic!("unexpected {other:?}"),
        }
    }
}
