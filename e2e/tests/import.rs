//! Files of other people's making, taken over and compared with what they were.

use std::path::Path;

use rusqlite::Connection;
use tidegate_e2e::dump::compare;
use tidegate_e2e::test_data;
use tidegate_engine::adopt;

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

/// Files as they lie about in the world. Each is taken and then equal to what it was,
/// or refused with a reason; which of the two is part of the test.
#[test]
fn files_of_many_kinds_are_taken_or_refused_with_the_reason() {
    let rows = "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT); CREATE INDEX t_v ON t (v);
        WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO t SELECT i, 'value ' || i FROM n;";
    let wal = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;";
    let files: [(&str, bool, String, Option<&str>); 12] = [
        ("rollback journal", false, rows.to_owned(), None),
        ("WAL, closed", false, format!("{wal} {rows}"), None),
        ("hot WAL", true, format!("{wal} {rows}"), None),
        (
            "pages of 512 bytes",
            false,
            format!("PRAGMA page_size = 512; {rows}"),
            None,
        ),
        (
            "pages of 64 KiB",
            false,
            format!("PRAGMA page_size = 65536; {rows}"),
            None,
        ),
        (
            "hot rollback journal",
            true,
            format!("PRAGMA cache_size = 2; {rows} BEGIN; UPDATE t SET v = v || 'x'"),
            Some("hot_journal"),
        ),
        (
            "text that is not UTF-8",
            false,
            format!("{rows} UPDATE t SET v = CAST(x'e9' AS TEXT) WHERE id = 77"),
            Some("text_not_utf8"),
        ),
        (
            "WITHOUT ROWID",
            false,
            format!("{rows} CREATE TABLE w (k PRIMARY KEY) WITHOUT ROWID"),
            Some("without_rowid"),
        ),
        (
            "full text search",
            false,
            format!("{rows} CREATE VIRTUAL TABLE f USING fts5 (body)"),
            Some("virtual_table"),
        ),
        (
            "generated column",
            false,
            format!("{rows} CREATE TABLE g (a, b AS (a * 2))"),
            Some("generated_column"),
        ),
        (
            "UTF-16",
            false,
            format!("PRAGMA encoding = 'UTF-16'; {rows}"),
            Some("encoding"),
        ),
        (
            "auto_vacuum",
            false,
            format!("PRAGMA auto_vacuum = FULL; {rows}"),
            Some("auto_vacuum"),
        ),
    ];
    for (kind, hot, sql, expected) in files {
        let dir = made_by_sqlite(&sql, hot);
        let path = dir.path().join("file.db");
        let target = dir.path().join("data");
        let found = match adopt::import(&path, &target) {
            Ok(report) => report.objections.first().map(|o| o.reason),
            Err(tidegate_engine::Error::Refused { reason, .. }) => Some(reason),
            Err(other) => panic!("{kind}: {other}"),
        };
        println!(
            "{kind:24} {}",
            found.map_or("taken".to_owned(), |r| format!("refused: {r}"))
        );
        assert_eq!(found, expected, "{kind}");
        if found.is_none() {
            let compared = compare(&path, &target.join("tidegate.db")).unwrap();
            assert!(compared.is_equal(), "{kind}: {:?}", compared.named);
            assert_eq!(compared.rows, 2000, "{kind}");
        }
    }
}

/// A file as its program left it, or, when hot, as a crash of that program left it.
fn made_by_sqlite(sql: &str, hot: bool) -> tempfile::TempDir {
    let live = tempfile::tempdir().unwrap();
    let sqlite = Connection::open(live.path().join("file.db")).unwrap();
    sqlite.execute_batch(sql).unwrap();
    if !hot {
        drop(sqlite);
        return live;
    }
    let left = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(live.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), left.path().join(entry.file_name())).unwrap();
    }
    left
}
