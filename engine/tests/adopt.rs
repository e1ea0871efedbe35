//! A file is kept exactly or refused with the reason; the original is never touched.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::Connection;
use tidegate_engine::adopt::{self, Report};
use tidegate_engine::{Error, Store, store::table_exists};

fn file(dir: &Path, sql: &str) -> PathBuf {
    let path = dir.join("mine.db");
    let sqlite = Connection::open(&path).unwrap();
    sqlite.execute_batch("PRAGMA foreign_keys = 0").unwrap();
    sqlite.execute_batch(sql).unwrap();
    path
}

fn inspect(sql: &str) -> Report {
    let dir = tempfile::tempdir().unwrap();
    adopt::inspect(&file(dir.path(), sql)).unwrap()
}

fn reasons(report: &Report) -> Vec<(&str, &str)> {
    let pairs = report.objections.iter();
    pairs.map(|o| (o.object.as_str(), o.reason)).collect()
}

fn refusal(outcome: Result<Report, Error>) -> &'static str {
    match outcome {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// The bytes and times of everything that lies in a directory.
fn fingerprint(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let modified = entry.metadata().unwrap().modified().unwrap();
            (entry.path(), std::fs::read(entry.path()).unwrap(), modified)
        })
        .collect();
    files.sort();
    files
}

/// Copies the files as a crash of their program would leave them.
fn crashed(sql: &str) -> tempfile::TempDir {
    let live = tempfile::tempdir().unwrap();
    let sqlite = Connection::open(live.path().join("mine.db")).unwrap();
    sqlite.execute_batch(sql).unwrap();
    let left = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(live.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), left.path().join(entry.file_name())).unwrap();
    }
    left
}

#[test]
fn an_ordinary_file_becomes_a_data_directory_and_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v REAL);
         INSERT INTO t VALUES (7, 5.0), (9, NULL); PRAGMA user_version = 3",
    );
    let before = fingerprint(dir.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let data_dir = elsewhere.path().join("data");
    let report = adopt::import(&path, &data_dir).unwrap();
    assert!(report.is_acceptable(), "{report:?}");
    assert_eq!(
        (report.tables.len(), report.rows(), report.page_bytes),
        (1, 2, 4096)
    );
    assert_eq!(fingerprint(dir.path()), before);

    let store = Store::open(&data_dir).unwrap();
    let mut writer = store.capturing(true).unwrap();
    assert!(table_exists(&mut writer, "_tidegate_meta").unwrap());
    let rows = writer
        .query_all("SELECT id, v, typeof(v) FROM t", &[])
        .unwrap();
    assert_eq!(rows[0], [7.into(), 5.0.into(), "real".into()]);
    writer.execute("INSERT INTO t (v) VALUES (1)", &[]).unwrap();
    assert_eq!(writer.last_insert_rowid(), 10);
    assert_eq!(
        writer.query_integer("PRAGMA user_version", &[]).unwrap(),
        Some(3)
    );
}

#[test]
fn a_hot_log_beside_the_file_is_recovered_in_the_copy() {
    let dir = crashed(
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (v);
         INSERT INTO t VALUES (1), (2)",
    );
    let before = fingerprint(dir.path());
    assert_eq!(before.len(), 3, "the file, its log and the shared memory");
    let elsewhere = tempfile::tempdir().unwrap();
    let report = adopt::import(&dir.path().join("mine.db"), elsewhere.path()).unwrap();
    assert!(report.is_acceptable(), "{report:?}");
    assert!(report.log_bytes > 0);
    assert_eq!(report.rows(), 2);
    assert_eq!(fingerprint(dir.path()), before);
}

#[test]
fn a_hot_journal_is_refused_with_what_to_do() {
    let dir = crashed(
        "PRAGMA cache_size = 2; CREATE TABLE t (v);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO t SELECT randomblob(500) FROM n;
         BEGIN; UPDATE t SET v = randomblob(500)",
    );
    let before = fingerprint(dir.path());
    let outcome = adopt::inspect(&dir.path().join("mine.db"));
    assert!(
        outcome
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("sqlite3")
    );
    assert_eq!(refusal(outcome), "hot_journal");
    assert_eq!(fingerprint(dir.path()), before);
}

#[test]
fn a_finished_journal_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "PRAGMA journal_mode = PERSIST; CREATE TABLE t (v); INSERT INTO t VALUES (1)",
    );
    assert!(dir.path().join("mine.db-journal").exists());
    assert_eq!(adopt::inspect(&path).unwrap().rows(), 1);
}

#[test]
fn every_property_that_would_not_replicate_is_an_objection() {
    let cases: [(&str, &str, &str); 15] = [
        (
            "CREATE TABLE t (a PRIMARY KEY) WITHOUT ROWID",
            "t",
            "without_rowid",
        ),
        (
            "CREATE VIRTUAL TABLE t USING rtree (a, b, c)",
            "t",
            "virtual_table",
        ),
        (
            "CREATE VIRTUAL TABLE t USING fts5 (a)",
            "t",
            "virtual_table",
        ),
        ("CREATE TABLE t (a, b AS (a + 1))", "t", "generated_column"),
        (
            "CREATE TABLE t (a, b AS (a + 1) STORED)",
            "t",
            "generated_column",
        ),
        (
            "CREATE TABLE t (rowid, _rowid_, oid)",
            "t",
            "rowid_shadowed",
        ),
        (
            "CREATE TABLE t (a UNIQUE ON CONFLICT REPLACE)",
            "t",
            "on_conflict_replace",
        ),
        (
            "CREATE TABLE t (a); CREATE TABLE u (a UNIQUE); CREATE TRIGGER r AFTER INSERT ON t \
             BEGIN UPDATE OR REPLACE u SET a = 1; END",
            "r",
            "update_or_replace",
        ),
        (
            "CREATE TABLE _tidegate_mine (a)",
            "_tidegate_mine",
            "internal_table",
        ),
        ("CREATE TABLE turso_cdc (a)", "turso_cdc", "internal_table"),
        (
            "CREATE TABLE _tidegate_meta (key, value)",
            "_tidegate_meta",
            "tidegate_file",
        ),
        (
            "CREATE TABLE t (a INTEGER(5) PRIMARY KEY)",
            "t",
            "sized_integer_key",
        ),
        (
            "PRAGMA encoding = 'UTF-16'; CREATE TABLE t (a)",
            "the file",
            "encoding",
        ),
        (
            "PRAGMA auto_vacuum = 1; CREATE TABLE t (a)",
            "the file",
            "auto_vacuum",
        ),
        (
            "PRAGMA auto_vacuum = 2; CREATE TABLE t (a)",
            "the file",
            "auto_vacuum",
        ),
    ];
    for (sql, object, reason) in cases {
        let report = inspect(sql);
        let found = reasons(&report);
        assert!(
            found.contains(&(object, reason)),
            "{sql}: {:?}",
            report.objections
        );
    }
}

#[test]
fn all_objections_are_listed_at_once_and_nothing_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "CREATE TABLE a (x PRIMARY KEY) WITHOUT ROWID; CREATE TABLE b (x, y AS (x));
         CREATE TABLE c (x INTEGER(3) PRIMARY KEY); CREATE TABLE fine (x)",
    );
    let data_dir = dir.path().join("data");
    let report = adopt::import(&path, &data_dir).unwrap();
    let found = reasons(&report);
    for object in ["a", "b", "c"] {
        assert!(
            found.iter().any(|(o, _)| *o == object),
            "{object}: {found:?}"
        );
    }
    assert!(!found.iter().any(|(o, _)| *o == "fine"));
    assert_eq!(std::fs::read_dir(&data_dir).unwrap().count(), 0);
}

#[test]
fn cells_whose_text_is_not_utf8_are_named() {
    let report = inspect(
        "CREATE TABLE t (a, \"b c\"); CREATE TABLE u (v);
         INSERT INTO t VALUES ('fine', 'ü'), (CAST(x'ff41' AS TEXT), 'x'), ('y', CAST(x'c3' AS TEXT)),
           (x'ff', 'a blob may hold anything');
         INSERT INTO u VALUES (1), (2)",
    );
    assert_eq!(reasons(&report), [("t", "text_not_utf8"); 2]);
    assert!(report.objections[0].message.starts_with("row 2, column a:"));
    assert!(
        report.objections[1]
            .message
            .starts_with("row 3, column b c:")
    );
    let counts: Vec<u64> = report.tables.iter().map(|t| t.rows).collect();
    assert_eq!(counts, [4, 2]);
}

#[test]
fn a_table_full_of_bad_text_is_named_by_its_first_cells_only() {
    let report = inspect(
        "CREATE TABLE t (v); WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < 500) INSERT INTO t SELECT CAST(x'ff' AS TEXT) FROM n",
    );
    assert_eq!(report.objections.len(), 20);
}

#[test]
fn references_that_point_nowhere_are_reported_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "CREATE TABLE p (id INTEGER PRIMARY KEY, a, b, UNIQUE (a, b)); INSERT INTO p VALUES (1, 'x', 'y');
         CREATE TABLE c (p REFERENCES p, q REFERENCES gone (z));
         INSERT INTO c VALUES (1, NULL), (2, NULL), (NULL, 5), (3, NULL);
         CREATE TABLE d (a, b, FOREIGN KEY (a, b) REFERENCES p (a, b));
         INSERT INTO d VALUES ('x', 'y'), ('x', NULL), ('x', 'z')",
    );
    let report = adopt::import(&path, &dir.path().join("data")).unwrap();
    assert!(report.is_acceptable(), "{report:?}");
    let mut found: Vec<_> = report
        .broken_references
        .iter()
        .map(|b| (b.table.as_str(), b.parent.as_str(), b.first_rowids.clone()))
        .collect();
    found.sort();
    let expected = [
        ("c", "gone", vec![3]),
        ("c", "p", vec![2, 4]),
        ("d", "p", vec![3]),
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_page_size_is_taken() {
    for page_bytes in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        let dir = tempfile::tempdir().unwrap();
        let path = file(
            dir.path(),
            &format!(
                "PRAGMA page_size = {page_bytes}; CREATE TABLE t (v UNIQUE);
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
                 INSERT INTO t SELECT randomblob(i * 10) FROM n"
            ),
        );
        let data_dir = dir.path().join("data");
        let report = adopt::import(&path, &data_dir).unwrap();
        assert_eq!(
            (report.rows(), report.page_bytes),
            (300, page_bytes),
            "{report:?}"
        );
        let store = Store::open(&data_dir).unwrap();
        let mut writer = store.capturing(true).unwrap();
        writer
            .execute("INSERT INTO t VALUES (zeroblob(70000))", &[])
            .unwrap();
    }
}

#[test]
fn what_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.db");
    assert!(matches!(adopt::inspect(&path), Err(Error::Io(_))));
    assert!(matches!(adopt::inspect(dir.path()), Err(Error::Io(_))));
    for bytes in [&b"SQLite format"[..], &[0x5a; 8192], b"CREATE TABLE t (v);"] {
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(refusal(adopt::inspect(&path)), "not_a_database");
    }
    std::fs::write(&path, b"").unwrap();
    let empty = adopt::import(&path, &dir.path().join("data")).unwrap();
    assert!(empty.is_acceptable(), "an empty file is an empty database");
    drop(Store::open(&dir.path().join("data")).unwrap());
}

#[test]
fn damage_is_an_objection() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "CREATE TABLE t (v); CREATE INDEX i ON t (v);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
         INSERT INTO t SELECT 'some text ' || i FROM n",
    );
    let mut bytes = std::fs::read(&path).unwrap();
    let page = bytes.len() / 4096 - 3;
    bytes[page * 4096..page * 4096 + 4096].fill(0x33);
    std::fs::write(&path, bytes).unwrap();
    let report = adopt::inspect(&path).unwrap();
    assert!(!report.is_acceptable());
    let damaged = |(_, reason): &(&str, &str)| ["corrupt", "unreadable"].contains(reason);
    assert!(
        reasons(&report).iter().all(damaged),
        "{:?}",
        report.objections
    );
}

#[test]
fn header_fields_that_the_engine_would_not_keep_are_objections() {
    for (at, value, reason) in [
        (47, 1, "schema_format"),
        (20, 8, "reserved_bytes"),
        (18, 9, "file_version"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = file(dir.path(), "CREATE TABLE t (v)");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] = value;
        std::fs::write(&path, bytes).unwrap();
        let report = adopt::inspect(&path).unwrap();
        assert!(
            reasons(&report).contains(&("the file", reason)),
            "{report:?}"
        );
    }
}

#[test]
fn a_directory_with_a_database_takes_no_other_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "CREATE TABLE t (v)");
    let data_dir = dir.path().join("data");
    drop(Store::open(&data_dir).unwrap());
    assert_eq!(
        refusal(adopt::import(&path, &data_dir)),
        "data_dir_not_empty"
    );
}

const HOLD: &str = "TIDEGATE_TEST_HOLD";

/// Not a test by itself: the other program of the test below.
#[test]
fn a_program_that_holds_a_file_open() {
    let Ok(path) = std::env::var(HOLD) else {
        return;
    };
    let sqlite = Connection::open(path).unwrap();
    let rows = sqlite.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    println!("\nholding {}", rows.unwrap());
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_file_that_another_program_has_open_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(
        dir.path(),
        "PRAGMA journal_mode = WAL; CREATE TABLE t (v); INSERT INTO t VALUES (1)",
    );
    let mut other = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_program_that_holds_a_file_open", "--exact", "--nocapture"])
        .env(HOLD, &path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(other.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("holding 1")));
    assert_eq!(refusal(adopt::inspect(&path)), "file_in_use");
    other.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(other.wait().unwrap().success());
    assert!(adopt::inspect(&path).unwrap().is_acceptable());
}
