//! The comparer names every kind of difference; C SQLite reads what the engine wrote, its
//! write-ahead log included.

use std::path::Path;

use rusqlite::Connection;
use tidegate_e2e::dump::{Comparison, compare};
use tidegate_engine::Store;
use tidegate_engine::snapshot::{Installer, Snapshot};

fn primary(dir: &Path) -> Store {
    let store = Store::open(dir).unwrap();
    let mut writer = store.capturing(true).unwrap();
    for statement in [
        "CREATE TABLE a (id INTEGER PRIMARY KEY AUTOINCREMENT, x REAL, y NUMERIC UNIQUE, z)",
        "CREATE INDEX a_x ON a (x DESC, length(z)) WHERE z IS NOT NULL",
        "CREATE TABLE b (t TEXT COLLATE NOCASE PRIMARY KEY, n INTEGER) STRICT",
        "CREATE VIEW v AS SELECT x FROM a",
        "CREATE TRIGGER one AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.id, 1); END",
        "CREATE TRIGGER another AFTER DELETE ON a BEGIN DELETE FROM b WHERE t = old.id; END",
        "PRAGMA user_version = 5",
        "PRAGMA application_id = 6",
    ] {
        writer.execute(statement, &[]).unwrap();
    }
    for id in 0..300i64 {
        let sql = "INSERT INTO a (x, y, z) VALUES (?, ?, randomblob(?))";
        let row = [(id as f64).into(), (-id).into(), (id * 20).into()];
        writer.execute(sql, &row).unwrap();
    }
    writer
        .execute("DELETE FROM a WHERE id % 7 = 0", &[])
        .unwrap();
    writer
        .execute("UPDATE a SET id = -id WHERE id % 5 = 0", &[])
        .unwrap();
    drop(writer);
    store
}

fn replicate(store: &Store, target: &Path) {
    let snapshot = Snapshot::take(store).unwrap();
    let mut bytes = vec![0; snapshot.content().bytes as usize];
    snapshot.read_at(0, &mut bytes).unwrap();
    let mut installer = Installer::begin(target, snapshot.content().bytes).unwrap();
    installer.write(&bytes).unwrap();
    let checked = installer.finish(snapshot.content()).unwrap();
    checked.install().unwrap();
}

#[test]
fn a_replica_made_from_a_snapshot_is_equal_and_one_planted_value_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let store = primary(&a);
    replicate(&store, &b);
    drop(store);
    let (a, b) = (a.join("tidegate.db"), b.join("tidegate.db"));
    let found = compare(&a, &b).unwrap();
    assert!(found.is_equal(), "{:?}", found.named);
    assert_eq!(
        (found.tables, found.integrity.len()),
        (2, 0),
        "{:?}",
        found.integrity
    );

    let planted = Connection::open(&b).unwrap();
    planted
        .execute_batch("UPDATE a SET x = 3.5 WHERE id = 3")
        .unwrap();
    drop(planted);
    let found = compare(&a, &b).unwrap();
    assert_eq!(found.differences, 1);
    assert!(
        found.named[0].contains("real 2.0 (4000"),
        "{:?}",
        found.named
    );
}

fn file(dir: &Path, name: &str, sql: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    let connection = Connection::open(&path).expect("a file");
    connection.execute_batch(sql).expect("statements");
    path
}

const BASE: &str = "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, v);
    CREATE TABLE \"odd \"\"name\" (rowid, w); INSERT INTO t (v) VALUES (1), ('x'), (0.0);
    INSERT INTO \"odd \"\"name\" VALUES ('a' || char(0) || 'b', x'00');
    CREATE TABLE turso_cdc (id); CREATE TABLE _tidegate_meta (id);
    CREATE TABLE _tidegate_dormant (ordinal INTEGER PRIMARY KEY, name, sql);";

fn compare_with(change: &str) -> Comparison {
    let dir = tempfile::tempdir().expect("a directory");
    let left = file(dir.path(), "left", BASE);
    let right = file(dir.path(), "right", &format!("{BASE}{change}"));
    compare(&left, &right).expect("a comparison")
}

#[test]
fn files_that_differ_in_nothing_are_equal() {
    let found =
        compare_with("INSERT INTO turso_cdc VALUES (1); INSERT INTO _tidegate_meta VALUES (1);");
    assert!(found.is_equal(), "{:?}", found.named);
    assert_eq!((found.tables, found.rows), (2, 4));
}

#[test]
fn every_kind_of_difference_is_named() {
    let changes = [
        ("UPDATE t SET v = 1.0 WHERE v = 1", "t: left [1]"),
        (
            "UPDATE t SET v = CAST('x' AS BLOB) WHERE v = 'x'",
            "blob x'78'",
        ),
        ("DELETE FROM t WHERE id = 2", "t: only left has [2]"),
        (
            "INSERT INTO \"odd \"\"name\" VALUES (1, 2)",
            "only right has [2]",
        ),
        ("UPDATE \"odd \"\"name\" SET rowid = 'a'", "text \"a\\0b\""),
        (
            "UPDATE \"odd \"\"name\" SET _rowid_ = 9",
            "only right has [9]",
        ),
        ("UPDATE sqlite_sequence SET seq = 99", "sequence t"),
        ("PRAGMA user_version = 3", "user_version"),
        ("PRAGMA application_id = 3", "application_id"),
        ("CREATE INDEX i ON t (v)", "index i"),
        ("CREATE VIEW w AS SELECT 1", "view w"),
        (
            "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END",
            "trigger 0001 g",
        ),
        ("ALTER TABLE t ADD COLUMN z", "table t"),
        ("DROP TABLE t", "table t"),
    ];
    for (change, expected) in changes {
        let found = compare_with(change);
        assert!(
            found.named.iter().any(|line| line.contains(expected)),
            "{change}: {:?}",
            found.named
        );
    }
}

#[test]
fn negative_zero_is_a_difference() {
    let dir = tempfile::tempdir().expect("a directory");
    let left = file(dir.path(), "left", BASE);
    let right = file(dir.path(), "right", BASE);
    let connection = Connection::open(&right).expect("the file");
    let sql = "UPDATE t SET v = ? WHERE typeof(v) = 'real'";
    assert_eq!(connection.execute(sql, [-0.0]).expect("an update"), 1);
    drop(connection);
    let found = compare(&left, &right).expect("a comparison");
    assert_eq!(found.differences, 1, "{:?}", found.named);
}

#[test]
fn dormant_triggers_are_put_back_in_their_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let bodies = ["b", "a"]
        .map(|name| format!("CREATE TRIGGER {name} AFTER INSERT ON t BEGIN SELECT 1; END"));
    let awake = file(
        dir.path(),
        "awake",
        &format!("{BASE}{};{};", bodies[0], bodies[1]),
    );
    let sleep = |first: usize, second: usize| {
        format!(
            "{BASE} INSERT INTO _tidegate_dormant VALUES ({first}, 'b', '{}'), ({second}, 'a', '{}')",
            bodies[0], bodies[1]
        )
    };
    let dormant = file(dir.path(), "dormant", &sleep(1, 2));
    let swapped = file(dir.path(), "swapped", &sleep(2, 1));
    assert!(compare(&awake, &dormant).expect("a comparison").is_equal());
    assert!(!compare(&awake, &swapped).expect("a comparison").is_equal());
}

#[test]
fn a_log_beside_the_file_takes_part_and_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let left = file(dir.path(), "left", BASE);
    let right = file(dir.path(), "right", BASE);
    let live = Connection::open(&right).expect("the file");
    live.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; UPDATE t SET v = 5",
    )
    .expect("a write");
    let log = dir.path().join("right-wal");
    let before = std::fs::read(&log).expect("the log");
    let found = compare(&left, &right).expect("a comparison");
    assert_eq!(found.differences, 3, "{:?}", found.named);
    assert_eq!(std::fs::read(&log).expect("the log"), before);
}
