//! Values, names and sizes.

use tidegate_engine::{BatchLimits, Value};

use crate::{Bench, replicates};

#[test]
fn values_that_sql_forgives_are_kept_exactly() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t(v) VALUES (0.0), (-0.0), (1), (1.0), (9e999), (-9e999), (5e-324)
         INSERT INTO t(v) VALUES (9223372036854775807), (-9223372036854775808), (9223372036854775808)
         INSERT INTO t(v) VALUES (''), (x''), (NULL), ('a' || char(0) || 'b'), (x'00'), ('𝄞é')
         INSERT INTO t(v) VALUES (0.1), (1e308), ('1'), (x'31'), (true), (zeroblob(1000))
         CREATE TABLE typed(i INTEGER, r REAL, t TEXT, b BLOB, n NUMERIC)
         INSERT INTO typed SELECT v, v, v, v, v FROM t
         CREATE TABLE strict(i INTEGER, r REAL, t TEXT, b BLOB, a ANY) STRICT
         INSERT INTO strict VALUES (1, 1, 1, x'01', 1.0), (NULL, NULL, NULL, NULL, 'x')",
    );
}

#[test]
fn parameters_arrive_exactly() {
    let mut bench = Bench::with("CREATE TABLE t(v)");
    let values = [
        Value::Real(-0.0),
        Value::Real(f64::MIN_POSITIVE / 2.0),
        Value::Text("nul\0 and more".into()),
        Value::Blob(vec![0, 255, 0]),
        Value::Integer(i64::MIN),
    ];
    let insert = |primary: &mut tidegate_engine::testing::Primary| {
        for value in values {
            primary.execute("INSERT INTO t VALUES (?)", &[value])?;
        }
        Ok(())
    };
    bench.pair.primary.transaction(insert).unwrap();
    bench.equal();
}

#[test]
fn odd_names() {
    replicates(
        "CREATE TABLE \"a\"\"b\"(\"c\"\"d\" TEXT, [e f], `g'h`, \"select\")
         INSERT INTO \"a\"\"b\" VALUES (1, 2, 3, 4)
         UPDATE \"A\"\"B\" SET \"select\" = 5
         CREATE TABLE \"it's\"(\"?\", \":x\", \"a;b\", \"--\")
         INSERT INTO \"it's\" VALUES (1, 2, 3, 4)
         CREATE TABLE \"Ünï çødé\"(\"日本\" PRIMARY KEY)
         INSERT INTO \"Ünï çødé\" VALUES ('x'), ('y')
         DELETE FROM \"Ünï çødé\" WHERE \"日本\" = 'x'
         CREATE TABLE hidden(rowid, b)
         INSERT INTO hidden VALUES (7, 'a'), (7, 'b')
         UPDATE hidden SET rowid = 8 WHERE b = 'a'
         CREATE TABLE hidden2(oid TEXT, rowid)
         INSERT INTO hidden2 VALUES ('x', 'y')
         CREATE TABLE keyed(rowid, _rowid_, oid INTEGER PRIMARY KEY)
         INSERT INTO keyed VALUES (1, 2, 30), (1, 2, 40)
         UPDATE keyed SET oid = 50 WHERE oid = 40
         CREATE TABLE \"123\"(\" \" INT, \"\t\")
         INSERT INTO \"123\" VALUES (1, 2)
         ALTER TABLE \"123\" RENAME TO \"4 5\"",
    );
}

#[test]
fn descending_and_quoted_integer_keys() {
    replicates(
        "CREATE TABLE d(id INTEGER PRIMARY KEY DESC, v)
         INSERT INTO d VALUES (9, 'a'), (3, 'b')
         UPDATE d SET id = 10 WHERE id = 9
         CREATE TABLE e(v, id INTEGER, PRIMARY KEY(id DESC))
         INSERT INTO e(v) VALUES ('a'), ('b')
         CREATE TABLE f(id INT PRIMARY KEY, v)
         INSERT INTO f VALUES (9, 'a'), (3, 'b')
         DELETE FROM f WHERE id = 9",
    );
}

#[test]
fn two_hundred_columns() {
    let columns: Vec<String> = (0..200).map(|i| format!("c{i}")).collect();
    let values: Vec<String> = (0..200).map(|i| format!("'v{i}'")).collect();
    replicates(&format!(
        "CREATE TABLE wide({})
         INSERT INTO wide VALUES ({})
         UPDATE wide SET c199 = 'last'",
        columns.join(", "),
        values.join(", ")
    ));
}

#[test]
fn values_of_five_and_fifty_megabytes_pass_through_a_file() {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, b, t)
         INSERT INTO t VALUES (1, randomblob(5000000), NULL)
         INSERT INTO t VALUES (2, zeroblob(52428800), hex(randomblob(2500000)))",
    );
    let source = &bench.pair.primary.store;
    let batch = bench.pair.replica.fetch(source).unwrap().unwrap();
    assert!(batch.spool.is_filed() && batch.spool.len() > 60_000_000);
    bench.pair.replica.known = Default::default();
    bench.equal();
    bench.run("UPDATE t SET b = x'' WHERE id = 2");
    bench.equal();
}

#[test]
fn a_hundred_thousand_rows_in_one_transaction() {
    let mut bench = Bench::with("CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT UNIQUE, b)");
    let load = |primary: &mut tidegate_engine::testing::Primary| {
        for id in 0..100_000 {
            let row = [
                id.into(),
                format!("row {id}").into(),
                (id as f64 / 3.0).into(),
            ];
            primary.execute("INSERT INTO t VALUES (?, ?, ?)", &row)?;
        }
        Ok(())
    };
    bench.pair.primary.transaction(load).unwrap();
    bench.equal();
    bench.run(
        "DELETE FROM t WHERE id % 7 = 0
         UPDATE t SET b = NULL WHERE id % 5 = 0
         UPDATE t SET id = id + 1000000 WHERE id < 100",
    );
    bench.equal();
}

#[test]
fn a_backlog_dearer_than_a_snapshot_asks_for_one() {
    let mut bench = Bench::with("CREATE TABLE t(id INTEGER PRIMARY KEY, b)");
    for (keys_max, bytes_max) in [(1, 1 << 30), (100, 1000)] {
        bench.run("INSERT INTO t(b) VALUES (randomblob(1000)), (randomblob(1000))");
        bench.pair.replica.limits = BatchLimits {
            keys_max,
            bytes_max,
            ..BatchLimits::default()
        };
        let error = bench.pair.ship().unwrap_err();
        assert!(
            error.to_string().starts_with("snapshot required"),
            "{error}"
        );
    }
    bench.pair.replica.limits = BatchLimits::default();
    bench.equal();
}
