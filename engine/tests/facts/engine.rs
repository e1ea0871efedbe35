//! The engine as a library: its version, its async wrapper, its caches.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tidegate_engine::adapter::Database;
use turso::core as tc;

use crate::bed::{Bed, run, run_all};

/// Fact 57: the adapter is written against this very version.
#[test]
fn the_engine_is_pinned() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = std::fs::read_to_string(lock).expect("the workspace's lock file");
    for package in ["turso", "turso_core", "turso_parser"] {
        let pinned = format!("name = \"{package}\"\nversion = \"0.8.3\"");
        assert!(
            lock.contains(&pinned),
            "{package}: read docs/engine.md first"
        );
    }
}

/// Fact 44.
#[test]
fn the_async_wrapper_runs_a_query_inside_poll() {
    let bed = Bed::new();
    let path = bed.dir().join("wrapped.db");
    let path = path.to_str().expect("UTF-8");
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) \
                SELECT count(*) FROM n";
    let database = poll_to_end(turso::Builder::new_local(path).build()).0;
    let connection = database
        .expect("a database")
        .connect()
        .expect("a connection");
    let query = async {
        let mut rows = connection.query(slow, ()).await.expect("a query");
        rows.next().await.expect("a row").is_some()
    };
    let (found, longest, whole) = poll_to_end(query);
    assert!(found);
    assert!(
        longest > whole / 2,
        "one poll took {longest:?} of {whole:?}"
    );
}

/// Fact 50.
#[test]
fn a_connection_runs_one_writing_statement_at_a_time() {
    let bed = Bed::new();
    let mut c = bed.plain();
    run_all(
        &mut c,
        &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1), (2), (3)"],
    );
    drop(c);
    let connection = raw(&bed);
    connection.execute("BEGIN IMMEDIATE").expect("begins");
    let mut first = connection
        .prepare("UPDATE t SET x = x + 1 RETURNING x")
        .expect("prepares");
    let mut second = connection
        .prepare("INSERT INTO t VALUES (9)")
        .expect("prepares");
    assert!(matches!(first.step(), Ok(tc::StepResult::Row)));
    let outcome = second.step();
    assert!(
        matches!(
            outcome,
            Err(tc::LimboError::Busy | tc::LimboError::StatementsInProgress(_))
        ) || matches!(outcome, Ok(tc::StepResult::Busy)),
        "a second writer got through"
    );
}

/// Fact 71.
#[test]
fn dropping_a_column_panics_while_a_prepared_statement_uses_an_index_of_the_table() {
    let bed = Bed::new();
    let connection = raw(&bed);
    for sql in [
        "CREATE TABLE t(a UNIQUE)",
        "BEGIN IMMEDIATE",
        "ALTER TABLE t ADD COLUMN b",
    ] {
        connection.execute(sql).expect("runs");
    }
    let held = connection.prepare("UPDATE t SET a = 1").expect("prepares");
    let dropped = || connection.execute("ALTER TABLE t DROP COLUMN b");
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(dropped));
    assert!(outcome.is_err(), "{outcome:?}");
    drop(held);
}

/// Fact 71, what the adapter does about it.
#[test]
fn the_adapter_forgets_prepared_statements_before_a_table_is_altered() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(a UNIQUE)",
            "BEGIN IMMEDIATE",
            "ALTER TABLE t ADD COLUMN b",
            "UPDATE t SET a = 1",
            "/* first */ ALTER TABLE t DROP COLUMN b",
            "COMMIT",
        ],
    );
}

/// Fact 45.
#[test]
fn an_explicit_cache_size_bounds_what_a_connection_keeps() {
    let bed = Bed::new();
    let path = bed.dir().join("big.db");
    // Written by C SQLite, whose small cache leaves this process without free memory that
    // would hide what the engine takes.
    let filler = rusqlite::Connection::open(&path).expect("opens");
    filler
        .execute_batch(
            "PRAGMA journal_mode = wal; PRAGMA cache_size = 10; \
             CREATE TABLE t(id INTEGER PRIMARY KEY, v); \
             INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
             WHERE i < 6000) SELECT i, zeroblob(3000) FROM n;",
        )
        .expect("filled");
    filler.close().expect("closed");
    let database = Database::open(&path).expect("opens");
    let kept = |pragma: Option<&str>| {
        let before = resident_kib();
        let connections: Vec<_> = (0..4)
            .map(|_| {
                let mut c = database.connect().expect("connects");
                if let Some(pragma) = pragma {
                    run(&mut c, pragma);
                }
                run(&mut c, "SELECT sum(length(v)) FROM t");
                c
            })
            .collect();
        let grown = resident_kib().saturating_sub(before);
        drop(connections);
        grown
    };
    let bounded = kept(Some("PRAGMA cache_size = -2000"));
    let default = kept(None);
    assert!(
        default > 2 * bounded,
        "default {default} KiB, bounded {bounded} KiB"
    );
}

/// Not an engine fact but the adapter's promise: a query can be interrupted and limited.
#[test]
fn a_query_can_be_interrupted_and_limited_in_time() {
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                   SELECT count(*) FROM n";
    let bed = Bed::new();
    let mut c = bed.plain();
    c.set_query_timeout(Duration::from_millis(30));
    let limited = c.execute(endless, &[]);
    assert!(
        matches!(limited, Err(tidegate_engine::Error::Interrupted)),
        "{limited:?}"
    );
    c.set_query_timeout(Duration::ZERO);
    let handle = c.interrupt_handle();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                handle.interrupt();
                std::thread::yield_now();
            }
        });
        let stopped = c.execute(endless, &[]);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(
            matches!(stopped, Err(tidegate_engine::Error::Interrupted)),
            "{stopped:?}"
        );
    });
}

/// The core's own connection, for what the adapter does not let through.
fn raw(bed: &Bed) -> std::sync::Arc<tc::Connection> {
    let io = std::sync::Arc::new(tc::UnixIO::new().expect("an I/O layer"));
    tc::Database::open_file_with_flags(
        io,
        bed.path().to_str().expect("UTF-8"),
        tc::OpenFlags::default(),
        tc::DatabaseOpts::new(),
        None,
        std::sync::Arc::new(tc::SqliteDialect),
    )
    .expect("opens")
    .connect()
    .expect("connects")
}

/// Polls a future without any runtime; also the longest single poll and the sum of all.
fn poll_to_end<F: Future>(future: F) -> (F::Output, Duration, Duration) {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let (mut longest, mut whole) = (Duration::ZERO, Duration::ZERO);
    loop {
        let started = Instant::now();
        let polled = future.as_mut().poll(&mut context);
        longest = longest.max(started.elapsed());
        whole += started.elapsed();
        if let Poll::Ready(output) = polled {
            return (output, longest, whole);
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .expect("a VmRSS line");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number of KiB")
}
