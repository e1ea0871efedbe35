//! Rows.

use crate::{Bench, replicates};

#[test]
fn an_empty_pair_is_equal() {
    let mut bench = Bench::new();
    bench.equal();
    assert!(bench.pair.ship().unwrap().is_none(), "nothing new");
}

#[test]
fn inserts_updates_deletes() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t VALUES (1, 'a'), (2, x'00ff'), (3, NULL), (4, 1.0), (5, -0.0)
         UPDATE t SET v = 9 WHERE id = 1
         UPDATE t SET id = 44 WHERE id = 2
         DELETE FROM t WHERE id = 3
         CREATE TABLE u(a, b)
         INSERT INTO u VALUES (1, 2), (1, 2), (1, 2)
         UPDATE u SET rowid = rowid + 100 WHERE rowid = 2
         DELETE FROM u WHERE rowid = 1
         UPDATE t SET v = 1 WHERE 0
         DELETE FROM t",
    );
}

#[test]
fn upserts_and_replace() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, e UNIQUE, v)
         INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')
         INSERT INTO t VALUES (1, 11, 'x') ON CONFLICT(id) DO UPDATE SET v = excluded.v
         INSERT INTO t VALUES (9, 20, 'x') ON CONFLICT(e) DO UPDATE SET v = t.v || '!'
         INSERT INTO t VALUES (9, 20, 'x') ON CONFLICT DO NOTHING
         REPLACE INTO t VALUES (1, 20, 'both')
         INSERT OR REPLACE INTO t(e, v) VALUES (30, 'new id')
         INSERT OR IGNORE INTO t VALUES (1, 1, 1), (50, 50, 50)
         !INSERT OR FAIL INTO t VALUES (60, 60, 60), (50, 0, 0)
         !INSERT OR ABORT INTO t VALUES (70, 70, 70), (50, 0, 0)
         !INSERT OR ROLLBACK INTO t VALUES (70, 70, 70), (50, 0, 0)",
    );
}

#[test]
fn unique_values_may_swap_and_rotate() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, e UNIQUE, f, UNIQUE(e, f))
         INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)
         BEGIN
         UPDATE t SET e = 'x' WHERE id = 1
         UPDATE t SET e = 'a' WHERE id = 2
         UPDATE t SET e = 'b' WHERE id = 1
         COMMIT
         BEGIN
         UPDATE t SET id = 100 WHERE id = 1
         UPDATE t SET id = 1 WHERE id = 3
         UPDATE t SET id = 3 WHERE id = 100
         COMMIT
         UPDATE t SET id = id + 10",
    );
}

#[test]
fn keys_of_every_kind_change() {
    replicates(
        "CREATE TABLE k(k TEXT PRIMARY KEY, v)
         CREATE TABLE c(a, b, v, PRIMARY KEY(a, b))
         CREATE TABLE n(v)
         INSERT INTO k VALUES ('a', 1), ('b', 2)
         INSERT INTO c VALUES (1, 1, 'x'), (1, 2, 'y')
         INSERT INTO n VALUES (1), (1), (2)
         UPDATE k SET k = 'c' WHERE k = 'a'
         UPDATE c SET b = b + 5
         !UPDATE c SET b = 7
         UPDATE n SET rowid = 9223372036854775807 WHERE v = 2
         INSERT INTO n VALUES ('random row id')
         UPDATE n SET rowid = -9223372036854775807 WHERE rowid = 1
         DELETE FROM n WHERE rowid = 9223372036854775807",
    );
}

#[test]
fn savepoints_and_rollbacks() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)
         BEGIN
         INSERT INTO t VALUES (1, 'a')
         SAVEPOINT one
         INSERT INTO t VALUES (2, 'b')
         SAVEPOINT two
         DELETE FROM t
         ROLLBACK TO two
         INSERT INTO t VALUES (3, 'c')
         RELEASE one
         !INSERT INTO t VALUES (4, 'd'), (5, 'a')
         COMMIT
         BEGIN
         DELETE FROM t
         CREATE TABLE never(a)
         INSERT INTO never VALUES (1)
         ROLLBACK
         BEGIN
         SAVEPOINT s
         CREATE TABLE briefly(a)
         INSERT INTO briefly VALUES (1)
         ROLLBACK TO s
         CREATE TABLE stays(a)
         INSERT INTO stays VALUES (1)
         COMMIT",
    );
}

#[test]
fn an_error_that_ends_the_transaction_leaves_nothing() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         BEGIN
         INSERT INTO t VALUES (1, 'a')
         !INSERT INTO t VALUES (2, json('{bad'))
         INSERT INTO t VALUES (3, 'after')
         !INSERT OR ROLLBACK INTO t VALUES (3, 'again')
         BEGIN
         INSERT INTO t VALUES (4, 'b')
         !INSERT OR ROLLBACK INTO t VALUES (3, 'again')
         INSERT INTO t VALUES (5, 'alone')",
    );
}

#[test]
fn sequences_are_exact() {
    replicates(
        "CREATE TABLE a(id INTEGER PRIMARY KEY AUTOINCREMENT, u UNIQUE)
         CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT, v)
         INSERT INTO a(u) VALUES ('x'), ('y')
         INSERT OR IGNORE INTO a(u) VALUES ('x')
         INSERT OR IGNORE INTO a(u) VALUES ('y'), ('x')
         INSERT INTO a VALUES (100, 'z')
         DELETE FROM a WHERE id = 100
         INSERT INTO a(u) VALUES ('next')
         UPDATE a SET id = 500 WHERE u = 'x'
         INSERT INTO b(v) VALUES (1)
         UPDATE b SET id = 77
         DELETE FROM b
         INSERT INTO b(v) VALUES (2)
         ALTER TABLE b RENAME TO c
         INSERT INTO c(v) VALUES (3)
         DROP TABLE c
         CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT, v)
         INSERT INTO b(v) VALUES (3)",
    );
}

#[test]
fn header_numbers_travel() {
    replicates(
        "PRAGMA user_version = 42
         PRAGMA application_id = -7
         PRAGMA user_version = 2147483647
         BEGIN
         PRAGMA user_version = 1
         ROLLBACK
         PRAGMA user_version = 0",
    );
}

#[test]
fn a_key_touched_a_thousand_times_is_shipped_once() {
    let mut bench = Bench::with("CREATE TABLE t(id INTEGER PRIMARY KEY, n)");
    bench.run("INSERT INTO t VALUES (1, 0)");
    for _ in 0..1000 {
        bench.pair.run("UPDATE t SET n = n + 1").unwrap();
    }
    let applied = bench.pair.ship().unwrap().unwrap();
    assert_eq!(applied.rows, 1);
    bench.equal();
}
