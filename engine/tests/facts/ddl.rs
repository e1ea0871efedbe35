//! Schema statements, which capture mostly does not see, and what the engine lacks.

use crate::bed::{Bed, fails, head, integers, logged, rows, run, run_all, texts, transact};

/// Fact 9.
#[test]
fn create_table_as_logs_its_schema_row_but_no_data() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &["CREATE TABLE a(x)", "INSERT INTO a VALUES (1), (2), (3)"],
    );
    let changes = logged(&mut c, |c| {
        transact(c, &["CREATE TABLE b AS SELECT * FROM a"])
    });
    assert_eq!(changes, ["insert schema", "commit"]);
    assert_eq!(integers(&mut c, "SELECT count(*) FROM b"), [3]);
}

/// Fact 10.
#[test]
fn renaming_a_table_or_column_logs_nothing() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for sql in [
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE u RENAME COLUMN x TO y",
    ] {
        let changes = logged(&mut c, |c| transact(c, &[sql]));
        assert!(changes.iter().all(|l| l == "commit"), "{sql}: {changes:?}");
    }
}

/// Fact 11.
#[test]
fn adding_or_dropping_a_column_logs_an_update_of_the_schema_and_old_images_decode_wrongly() {
    let bed = Bed::new();
    let mut c = bed.capturing_in("full");
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x, y)",
            "INSERT INTO t VALUES (1, 'x', 'y')",
        ],
    );
    for sql in [
        "ALTER TABLE t ADD COLUMN z DEFAULT 7",
        "ALTER TABLE t DROP COLUMN x",
    ] {
        let changes = logged(&mut c, |c| transact(c, &[sql]));
        assert_eq!(changes, ["update schema", "commit"], "{sql}");
    }
    let names = "SELECT bin_record_json_object(table_columns_json_array('t'), after) \
                 FROM turso_cdc WHERE table_name = 't' AND change_type = 1";
    let decoded = texts(&mut c, names);
    assert!(decoded[0].contains(r#""y":"x""#), "{decoded:?}");
}

/// Fact 12.
#[test]
fn views_and_triggers_log_nothing() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for sql in [
        "CREATE VIEW v AS SELECT x FROM t",
        "CREATE TRIGGER tr AFTER INSERT ON t BEGIN DELETE FROM t WHERE id = 0; END",
        "DROP TRIGGER tr",
        "DROP VIEW v",
    ] {
        let changes = logged(&mut c, |c| transact(c, &[sql]));
        assert!(changes.iter().all(|l| l == "commit"), "{sql}: {changes:?}");
    }
}

/// Facts 9 to 12, the part that works: tables and indexes.
#[test]
fn creating_and_dropping_tables_and_indexes_logs_schema_rows() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    for (sql, change) in [
        ("CREATE TABLE t(id INTEGER PRIMARY KEY, x)", "insert schema"),
        ("CREATE INDEX i ON t(x)", "insert schema"),
        ("DROP INDEX i", "delete schema"),
        ("DROP TABLE t", "delete schema"),
    ] {
        let changes = logged(&mut c, |c| transact(c, &[sql]));
        assert_eq!(changes, [change, "commit"], "{sql}");
    }
}

/// Fact 15.
#[test]
fn temporary_tables_are_logged_under_the_bare_name_even_when_they_shadow_another() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
            "CREATE TEMP TABLE t(id INTEGER PRIMARY KEY, x)",
        ],
    );
    let changes = logged(&mut c, |c| {
        transact(c, &["INSERT INTO temp.t VALUES (5, 5)"])
    });
    assert_eq!(changes, ["insert t 5", "commit"]);
    assert!(rows(&mut c, "SELECT * FROM main.t").is_empty());
}

/// Fact 27.
#[test]
fn a_column_named_rowid_hides_the_row_id() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(rowid TEXT, v)",
            "INSERT INTO t VALUES ('mine', 1)",
        ],
    );
    assert_eq!(texts(&mut c, "SELECT rowid FROM t"), ["mine"]);
    assert_eq!(integers(&mut c, "SELECT _rowid_ FROM t"), [1]);
    assert_eq!(integers(&mut c, "SELECT oid FROM t"), [1]);
    let changes = logged(&mut c, |c| transact(c, &["UPDATE t SET v = 2"]));
    assert_eq!(changes, ["update t 1", "commit"]);
}

/// Fact 27, all three aliases taken: the row id cannot be named at all.
#[test]
fn a_table_can_hide_its_row_id_completely() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(rowid, oid, _rowid_)",
            "INSERT INTO t VALUES ('a', 'b', 'c')",
        ],
    );
    assert_eq!(
        rows(&mut c, "SELECT rowid, oid, _rowid_ FROM t"),
        [["a".into(), "b".into(), "c".into()]]
    );
}

/// Fact 31.
#[test]
fn experimental_features_are_off() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)");
    for sql in [
        "CREATE TABLE w(a PRIMARY KEY) WITHOUT ROWID",
        "CREATE TABLE g(a, b AS (a + 1))",
        "CREATE TABLE g(a, b GENERATED ALWAYS AS (a + 1) VIRTUAL)",
        "CREATE MATERIALIZED VIEW mv AS SELECT x FROM t",
        "CREATE TYPE money BASE integer ENCODE value DECODE value",
        "VACUUM",
        "ATTACH 'elsewhere.db' AS other",
    ] {
        fails(&mut c, sql);
    }
}

/// Fact 56.
#[test]
fn the_engine_lacks_some_sql() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, x)",
            "CREATE VIEW v AS SELECT x FROM t",
        ],
    );
    for sql in [
        "CREATE TRIGGER tr INSTEAD OF INSERT ON v BEGIN INSERT INTO t(x) VALUES (new.x); END",
        "CREATE VIRTUAL TABLE f USING fts5(body)",
        "CREATE VIRTUAL TABLE f USING rtree(id, a, b)",
        "CREATE TABLE g(a, b AS (a + 1) STORED)",
        "DELETE FROM t LIMIT 1",
        "UPDATE t SET x = 1 LIMIT 1",
    ] {
        fails(&mut c, sql);
    }
    let deep = format!("SELECT {}1{}", "(".repeat(120), ")".repeat(120));
    let flat = format!("SELECT {}1", "1 + ".repeat(120));
    let errors = [deep, flat].map(|sql| c.execute(&sql, &[]).is_err());
    assert!(errors.contains(&true), "{errors:?}");
}

/// Edge 10.
#[test]
fn pragma_functions_do_not_take_a_quoted_quote() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE \"a\"\"b\"(x, y)");
    let found = c.query_all("SELECT name FROM pragma_table_info('a\"b')", &[]);
    assert!(found.is_err() || found.is_ok_and(|rows| rows.is_empty()));
}

/// Edge 15: a row is gone when its joined row id is NULL; its columns may be NULL anyway.
#[test]
fn dropping_a_table_logs_no_deletes_of_its_rows() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &["CREATE TABLE t(x)", "INSERT INTO t VALUES (1), (2)"],
    );
    let before = head(&mut c);
    let changes = logged(&mut c, |c| transact(c, &["DROP TABLE t"]));
    assert!(changes.iter().all(|l| !l.contains(" t ")), "{changes:?}");
    assert!(head(&mut c) > before);
}
