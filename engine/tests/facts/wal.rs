//! The write-ahead log: checkpoints, what bounds it, reading pages of a snapshot.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_engine::adapter::Database;
use turso::core as tc;

use crate::bed::{Bed, integers, rows, run, run_all, texts, transact};

const FRAME_LEN: u64 = 4_096 + 24;

/// Fact 46.
#[test]
fn automatic_checkpoints_run_inside_commits_at_a_thousand_frames() {
    let bed = Bed::new();
    let c = automatic(&bed, "NORMAL");
    let mut longest = 0;
    for n in 0..4_000 {
        execute(&c, &format!("INSERT INTO t VALUES ({n}, zeroblob(300))"));
        longest = longest.max(bed.wal_len());
    }
    assert!(longest < 1_400 * FRAME_LEN, "{longest} bytes");
    assert!(longest > 900 * FRAME_LEN, "{longest} bytes");
}

/// Fact 46, with the adapter, which switches them off.
#[test]
fn without_automatic_checkpoints_the_log_grows_until_ours() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA synchronous = NORMAL",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
        ],
    );
    for n in 0..1_500 {
        run(
            &mut c,
            &format!("INSERT INTO t VALUES ({n}, zeroblob(300))"),
        );
    }
    assert!(bed.wal_len() > 1_500 * FRAME_LEN);
    let outcome = c.checkpoint_truncate().expect("a checkpoint");
    assert!(outcome.complete);
    assert_eq!(bed.wal_len(), 0);
}

/// Fact 46 and edge 19: while anybody reads, passive checkpoints bound nothing.
#[test]
fn a_reader_keeps_the_log_from_being_reset() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA synchronous = NORMAL",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
        ],
    );
    let mut reader = bed.plain();
    run(&mut reader, "BEGIN");
    integers(&mut reader, "SELECT count(*) FROM t");
    for n in 0..500 {
        run(
            &mut c,
            &format!("INSERT INTO t VALUES ({n}, zeroblob(300))"),
        );
        if n % 100 == 99 {
            c.checkpoint_passive().expect("a checkpoint");
        }
    }
    assert!(bed.wal_len() > 500 * FRAME_LEN, "{}", bed.wal_len());
    let refused = c.checkpoint_truncate();
    assert!(
        !matches!(&refused, Ok(outcome) if outcome.complete),
        "{refused:?}"
    );
    run(&mut reader, "COMMIT");
    assert!(c.checkpoint_truncate().expect("a checkpoint").complete);
}

/// Edge 19: passive checkpoints do not bound the log even without any reader.
#[test]
fn passive_checkpoints_alone_do_not_bound_the_log() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA synchronous = NORMAL",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
        ],
    );
    run(&mut c, "INSERT INTO t VALUES (1, 0)");
    let start = bed.wal_len();
    for _ in 0..1_000 {
        run(&mut c, "UPDATE t SET v = v + 1");
        c.checkpoint_passive().expect("a checkpoint");
    }
    assert!(
        bed.wal_len() - start >= 1_000 * FRAME_LEN,
        "{}",
        bed.wal_len()
    );
}

/// Fact 47.
#[test]
fn with_synchronous_off_automatic_checkpoints_do_not_bound_the_log() {
    let bed = Bed::new();
    let c = automatic(&bed, "OFF");
    for n in 0..4_000 {
        execute(&c, &format!("INSERT INTO t VALUES ({n}, zeroblob(300))"));
    }
    assert!(bed.wal_len() > 4_000 * FRAME_LEN, "{} bytes", bed.wal_len());
}

/// Fact 48: nothing folds the log in by itself, not even closing the last connection when
/// automatic checkpoints are off.
#[test]
fn only_an_explicit_checkpoint_leaves_no_log_behind() {
    let bed = Bed::new();
    let path = bed.dir().join("other.db");
    let wal = bed.dir().join("other.db-wal");
    let wal_len = || std::fs::metadata(&wal).map_or(0, |m| m.len());
    let fill = || {
        let database = Database::open(&path).expect("opens");
        let mut c = database.connect().expect("connects");
        run_all(
            &mut c,
            &[
                "CREATE TABLE IF NOT EXISTS t(x)",
                "INSERT INTO t VALUES (1)",
            ],
        );
        (database, c)
    };
    drop(fill());
    assert!(wal_len() > 0, "dropped");
    let (database, c) = fill();
    c.close().expect("closes");
    drop(database);
    assert!(wal_len() > 0, "closed");
    let (database, mut c) = fill();
    assert!(c.checkpoint_truncate().expect("a checkpoint").complete);
    c.close().expect("closes");
    drop(database);
    assert_eq!(wal_len(), 0, "checkpointed");
}

/// Fact 48, as the engine comes: closing the last connection folds the log in.
#[test]
fn with_automatic_checkpoints_closing_the_last_connection_folds_the_log_in() {
    let bed = Bed::new();
    let c = automatic(&bed, "FULL");
    execute(&c, "INSERT INTO t VALUES (1, 1)");
    assert!(bed.wal_len() > 0);
    c.close().expect("closes");
    drop(c);
    assert_eq!(bed.wal_len(), 0);
}

/// Fact 54.
#[test]
fn pages_read_at_a_watermark_are_a_consistent_file_beside_a_writer() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "PRAGMA synchronous = NORMAL",
            "CREATE TABLE t(id INTEGER PRIMARY KEY, v)",
            "CREATE INDEX i ON t(v)",
            "INSERT INTO t SELECT value, value * 7 FROM generate_series(1, 5000)",
        ],
    );
    let stop = Arc::new(AtomicBool::new(false));
    let writer = spawn_writer(&bed, stop.clone());
    let mut reader = bed.plain();
    run(&mut reader, "BEGIN");
    let expected = rows(&mut reader, "SELECT count(*), sum(v) FROM t");
    let copy = bed.dir().join("copy.db");
    copy_pages(&mut reader, &copy);
    run(&mut reader, "COMMIT");
    stop.store(true, Ordering::SeqCst);
    assert!(writer.join().expect("the writer") > 0);

    let database = Database::open(&copy).expect("opens");
    let mut other = database.connect().expect("connects");
    assert_eq!(texts(&mut other, "PRAGMA integrity_check"), ["ok"]);
    assert_eq!(rows(&mut other, "SELECT count(*), sum(v) FROM t"), expected);
}

fn spawn_writer(bed: &Bed, stop: Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let mut c = bed.capturing();
    let started = Arc::new(AtomicBool::new(false));
    let seen = started.clone();
    let thread = std::thread::spawn(move || {
        run(&mut c, "PRAGMA synchronous = NORMAL");
        let mut n = 0;
        while !stop.load(Ordering::SeqCst) {
            let id = n * 7_919 % 5_000 + 1;
            transact(
                &mut c,
                &[&format!("UPDATE t SET v = v + 1 WHERE id = {id}")],
            );
            n += 1;
            seen.store(true, Ordering::SeqCst);
        }
        n
    });
    while !started.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    thread
}

fn copy_pages(reader: &mut tidegate_engine::adapter::Connection, to: &std::path::Path) {
    let pages = integers(reader, "PRAGMA page_count")[0];
    let at = reader.watermark().expect("a watermark");
    let mut file = std::fs::File::create(to).expect("a file");
    let mut page = vec![0; 4_096];
    for number in 1..=u32::try_from(pages).expect("few pages") {
        assert!(reader.read_page(number, at, &mut page).expect("a page"));
        file.write_all(&page).expect("written");
    }
}

/// The engine as it comes, with its automatic checkpoints.
fn automatic(bed: &Bed, synchronous: &str) -> Arc<tc::Connection> {
    let c = Arc::new(crate::faults::Disk::default())
        .open(&bed.path())
        .connect()
        .expect("connects");
    execute(&c, &format!("PRAGMA synchronous = {synchronous}"));
    execute(&c, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    c
}

fn execute(c: &Arc<tc::Connection>, sql: &str) {
    c.execute(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
}
