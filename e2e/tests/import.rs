//! Files of other people's making, taken over and compared with what they were.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tidegate_e2e::dump::compare;
use tidegate_engine::adopt;

/// Where real files lie: `TIDEGATE_TEST_DATA`, else `../shared/data` from the project.
fn test_data(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("TIDEGATE_TEST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = dir.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "skipped: {} is absent; set TIDEGATE_TEST_DATA to a directory that has it",
        path.display()
    );
    None
}

fn import(path: &Path) -> (adopt::Report, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let report = adopt::import(path, &dir.path().join("data")).unwrap();
    assert!(report.is_acceptable(), "{:?}", report.objections);
    let found = compare(path, &dir.path().join("data/tidegate.db")).unwrap();
    assert!(found.is_equal(), "{:?}", found.named);
    assert!(found.integrity.is_empty(), "{:?}", found.integrity);
    assert_eq!(found.rows, report.rows());
    (report, dir)
}

#[test]
fn the_chinook_database_arrives_row_for_row() {
    let Some(path) = test_data("chinook.sqlite") else {
        return;
    };
    let before = std::fs::read(&path).unwrap();
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    let (report, _dir) = import(&path);
    assert_eq!((report.tables.len(), report.rows()), (11, 15_607));
    assert!(report.broken_references.is_empty());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(
        std::fs::metadata(&path).unwrap().modified().unwrap(),
        modified
    );
}

/// What SQLite stores in ways of its own: integers in REAL columns, constants of no bytes,
/// short records of columns added later, long values on overflow pages.
#[test]
fn values_stored_in_unusual_ways_are_read_as_sqlite_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("odd.db");
    let sqlite = Connection::open(&path).unwrap();
    sqlite
        .execute_batch(
            "PRAGMA page_size = 1024;
             CREATE TABLE v (id INTEGER PRIMARY KEY, r REAL, n NUMERIC, t TEXT, b BLOB, x);
             INSERT INTO v VALUES (-9223372036854775808, 5, '7.0', 7, '7', x''),
               (0, 1e300, 9223372036854775807, '', NULL, 9e999),
               (1, -1e-300, 9223372036854775808, 'a' || char(0) || 'b', zeroblob(5000), -9e999),
               (2, 0, 1, 2.5, 3, 4), (3, 16777217, -1, 'ü', 'ü', 72057594037927936),
               (9223372036854775807, '12abc', '12abc', x'00', 'x', 0.1);
             ALTER TABLE v ADD COLUMN late INTEGER DEFAULT 42;
             ALTER TABLE v ADD COLUMN later REAL DEFAULT 1;
             INSERT INTO v (id) VALUES (50);
             INSERT INTO v (id) VALUES (51)",
        )
        .unwrap();
    sqlite
        .execute_batch(
            "CREATE TABLE k (a TEXT COLLATE NOCASE, b ANY, PRIMARY KEY (a, b DESC)) STRICT;
             INSERT INTO k VALUES ('A', 1), ('a', 1.5), ('b', x'61'), ('B', '61');
             CREATE INDEX k_b ON k (b DESC, a COLLATE RTRIM) WHERE b > 0;
             CREATE TABLE d (id INTEGER PRIMARY KEY DESC, w); INSERT INTO d VALUES (8, 1), (7, 2);
             CREATE TABLE \"we\"\"ird [name]\" (\"a b\", [rowid], `c``d`);
             INSERT INTO \"we\"\"ird [name]\" VALUES (1, 2, 3);
             CREATE VIEW big AS SELECT a FROM k WHERE b > 1;
             CREATE TRIGGER log AFTER INSERT ON d BEGIN INSERT INTO k VALUES (new.w, 1); END;
             PRAGMA user_version = -5; PRAGMA application_id = 1196444487; ANALYZE",
        )
        .unwrap();
    drop(sqlite);
    import(&path);
}
