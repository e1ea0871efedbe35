//! Values that must survive to the bit.

use tidegate_engine::Value;

use crate::bed::{Bed, fails, integers, rows, run, run_all, texts, transact};

/// Fact 26.
#[test]
fn odd_values_are_exact_in_the_file_and_blurred_by_sql() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    let odd: Vec<Value> = vec![
        Value::Real(-0.0),
        Value::Real(0.0),
        Value::Real(f64::INFINITY),
        Value::Real(f64::NEG_INFINITY),
        Value::Real(1.0),
        Value::Integer(1),
        Value::Text("nul\0inside".into()),
        Value::Text(String::new()),
        Value::Blob(Vec::new()),
        Value::Null,
    ];
    for (id, value) in (0_i64..).zip(&odd) {
        c.execute("INSERT INTO t VALUES (?, ?)", &[id.into(), value.clone()])
            .expect("an odd value");
    }
    let read: Vec<Value> = rows(&mut bed.plain(), "SELECT v FROM t ORDER BY id")
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(read, odd);
    let minus_zero = |v: &Value| matches!(v, Value::Real(r) if r.to_bits() == (-0.0_f64).to_bits());
    assert!(minus_zero(&read[0]) && !minus_zero(&read[1]));
    let equal = "SELECT a.id, b.id FROM t a, t b WHERE a.id < b.id AND a.v = b.v ORDER BY 1";
    assert_eq!(
        rows(&mut c, equal),
        [[0.into(), 1.into()], [4.into(), 5.into()]],
        "SQL takes them for equal"
    );
}

/// Fact 26: NaN is no value of a database.
#[test]
fn nan_is_stored_as_null() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(v)");
    c.execute("INSERT INTO t VALUES (?)", &[Value::Real(f64::NAN)])
        .expect("NaN is accepted");
    assert_eq!(texts(&mut c, "SELECT typeof(v) FROM t"), ["null"]);
}

/// Facts 26 and 53: C SQLite stores any bytes as text, and this engine refuses to read them.
#[test]
fn text_that_is_not_utf8_cannot_be_read_in_any_way() {
    let bed = Bed::new();
    let path = bed.dir().join("foreign.db");
    let foreign = rusqlite::Connection::open(&path).expect("C SQLite opens a new file");
    foreign
        .execute_batch(
            "PRAGMA journal_mode = wal; CREATE TABLE t(v); \
             INSERT INTO t VALUES (CAST(x'61ff62' AS TEXT));",
        )
        .expect("C SQLite stores any bytes as text");
    foreign.close().expect("closed");
    let database = tidegate_engine::adapter::Database::open(&path).expect("opens");
    let mut c = database.connect().expect("connects");
    for sql in [
        "SELECT v FROM t",
        "SELECT CAST(v AS BLOB) FROM t",
        "SELECT typeof(v) FROM t",
        "UPDATE t SET v = v || 'x'",
    ] {
        run(&mut c, "BEGIN");
        let error = fails(&mut c, sql);
        assert!(
            matches!(error, tidegate_engine::Error::Corrupt(_)),
            "{sql}: {error}"
        );
        assert!(c.is_autocommit(), "{sql} ends the transaction");
    }
    assert_eq!(texts(&mut c, "PRAGMA integrity_check"), ["ok"], "unnoticed");
}

/// Fact 53, the other way round: the engine itself never stores such text.
#[test]
fn bytes_cast_to_text_are_repaired() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(v)",
            "INSERT INTO t VALUES (CAST(x'61ff62' AS TEXT))",
        ],
    );
    assert_eq!(texts(&mut c, "SELECT v FROM t"), ["a\u{fffd}b"]);
}

/// Fact 28.
#[test]
fn three_thousand_rows_of_two_kilobytes_fit_one_transaction() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run(&mut c, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    run(&mut c, "BEGIN IMMEDIATE");
    for id in 0..3_000_i64 {
        c.execute(
            "INSERT INTO t VALUES (?, ?)",
            &[id.into(), "x".repeat(2_000).into()],
        )
        .expect("an insert");
    }
    run(&mut c, "COMMIT");
    let logged = "SELECT count(*) FROM turso_cdc WHERE table_name = 't'";
    assert_eq!(integers(&mut c, logged), [3_000]);
}

/// Fact 30.
#[test]
fn swapped_unique_values_need_delete_then_insert() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(id INTEGER PRIMARY KEY, u UNIQUE)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        ],
    );
    transact(
        &mut c,
        &[
            "UPDATE t SET u = NULL WHERE id = 1",
            "UPDATE t SET u = 'a' WHERE id = 2",
            "UPDATE t SET u = 'b' WHERE id = 1",
        ],
    );
    // The final rows, put one by one, collide with what is still there.
    fails(&mut c, "UPDATE t SET u = 'a' WHERE id = 1");
    transact(
        &mut c,
        &[
            "DELETE FROM t WHERE id IN (1, 2)",
            "INSERT INTO t VALUES (1, 'a')",
            "INSERT INTO t VALUES (2, 'b')",
        ],
    );
}

/// Fact 37.
#[test]
fn vacuum_into_keeps_row_ids() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(v)",
            "INSERT INTO t SELECT value FROM generate_series(1, 50)",
            "DELETE FROM t WHERE rowid % 3 = 0",
        ],
    );
    let copy = bed.dir().join("copy.db");
    run(&mut c, &format!("VACUUM INTO '{}'", copy.display()));
    let database = tidegate_engine::adapter::Database::open(&copy).expect("opens");
    let mut other = database.connect().expect("connects");
    let all = "SELECT rowid, v FROM t ORDER BY rowid";
    assert_eq!(rows(&mut other, all), rows(&mut c, all));
}

/// Tried and found to hold: the largest row id, and ids chosen after it.
#[test]
fn the_largest_row_id_is_followed_by_random_ones() {
    let bed = Bed::new();
    let mut c = bed.capturing();
    run_all(
        &mut c,
        &[
            "CREATE TABLE t(v)",
            "INSERT INTO t(rowid, v) VALUES (9223372036854775807, 1)",
            "INSERT INTO t VALUES (2)",
        ],
    );
    let ids = integers(&mut c, "SELECT rowid FROM t ORDER BY v");
    assert_eq!(ids[0], i64::MAX);
    let keys = "SELECT id FROM turso_cdc WHERE table_name = 't' ORDER BY change_id";
    assert_eq!(integers(&mut c, keys), ids);
}
