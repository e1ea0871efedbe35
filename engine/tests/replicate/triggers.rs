//! Triggers: their effects are shipped as rows; they themselves sleep on a replica.

use tidegate_engine::triggers;

use crate::{Bench, replicates};

#[test]
fn a_trigger_that_updates_its_own_row() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v, n DEFAULT 0)
         CREATE TRIGGER stamp AFTER INSERT ON t BEGIN UPDATE t SET n = n + 1, v = new.v || '!' WHERE id = new.id; END
         INSERT INTO t(v) VALUES ('a'), ('b'), ('c')
         INSERT INTO t(id, v) VALUES (2, 'x') ON CONFLICT(id) DO UPDATE SET v = excluded.v
         CREATE TRIGGER gone AFTER UPDATE OF v ON t WHEN new.v = 'bye' BEGIN DELETE FROM t WHERE id = new.id; END
         UPDATE t SET v = 'bye' WHERE id = 1
         INSERT INTO t(v) VALUES ('bye')",
    );
}

#[test]
fn nested_triggers_and_their_logs() {
    replicates(
        "CREATE TABLE a(id INTEGER PRIMARY KEY, v)
         CREATE TABLE b(id INTEGER PRIMARY KEY, v)
         CREATE TABLE log(id INTEGER PRIMARY KEY AUTOINCREMENT, m)
         CREATE TRIGGER a1 AFTER INSERT ON a BEGIN INSERT INTO b VALUES (new.id, new.v); END
         CREATE TRIGGER b1 AFTER INSERT ON b BEGIN INSERT INTO log(m) VALUES ('b' || new.id); END
         CREATE TRIGGER b2 BEFORE UPDATE ON b BEGIN INSERT INTO log(m) VALUES (old.v || '>' || new.v); END
         CREATE TRIGGER b3 BEFORE DELETE ON b BEGIN INSERT INTO log(m) VALUES ('-' || old.id); END
         CREATE TRIGGER a2 AFTER DELETE ON a BEGIN DELETE FROM b WHERE id = old.id; END
         CREATE TRIGGER a3 AFTER UPDATE ON a BEGIN UPDATE b SET v = new.v WHERE id = old.id; END
         INSERT INTO a VALUES (1, 'x'), (2, 'y'), (3, 'z')
         UPDATE a SET v = v || v
         DELETE FROM a WHERE id < 3
         BEGIN
         INSERT INTO a VALUES (4, 'q')
         UPDATE a SET v = 'r'
         DELETE FROM a
         COMMIT",
    );
}

#[test]
fn a_trigger_that_raises_undoes_its_statement() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         CREATE TRIGGER no BEFORE INSERT ON t WHEN new.v < 0 BEGIN SELECT RAISE(ABORT, 'negative'); END
         INSERT INTO t(v) VALUES (1), (2)
         !INSERT INTO t(v) VALUES (3), (-1)
         CREATE TRIGGER skip BEFORE INSERT ON t WHEN new.v = 7 BEGIN SELECT RAISE(IGNORE); END
         INSERT INTO t(v) VALUES (6), (7), (8)",
    );
}

#[test]
fn schema_changes_rewrite_and_remove_triggers() {
    replicates(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         CREATE TABLE log(m)
         CREATE TRIGGER one AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.v); END
         CREATE TRIGGER two AFTER INSERT ON t BEGIN INSERT INTO log VALUES ('two ' || new.v); END
         INSERT INTO t(v) VALUES (1)
         ALTER TABLE t RENAME COLUMN v TO w
         INSERT INTO t(w) VALUES (2)
         ALTER TABLE log RENAME TO journal
         INSERT INTO t(w) VALUES (3)
         ALTER TABLE t RENAME TO u
         INSERT INTO u(w) VALUES (4)
         DROP TRIGGER one
         CREATE TRIGGER one AFTER INSERT ON u BEGIN INSERT INTO journal VALUES ('again ' || new.w); END
         INSERT INTO u(w) VALUES (5)
         DROP TABLE u
         CREATE TABLE u(id INTEGER PRIMARY KEY, w)
         INSERT INTO u(w) VALUES (6)",
    );
}

#[test]
fn triggers_sleep_on_a_replica_and_wake_in_order() {
    let mut bench = Bench::with(
        "CREATE TABLE t(v)
         CREATE TABLE log(id INTEGER PRIMARY KEY, m)
         CREATE TRIGGER z AFTER INSERT ON t BEGIN INSERT INTO log(m) VALUES ('z'); END
         CREATE TRIGGER a AFTER INSERT ON t BEGIN INSERT INTO log(m) VALUES ('a'); END
         INSERT INTO t VALUES (1)",
    );
    let mut reader = bench.pair.replica.store.reader().unwrap();
    assert!(triggers::live_triggers(&mut reader).unwrap().is_empty());
    drop(reader);
    let expected = bench.pair.primary.rows("SELECT m FROM log ORDER BY id");
    let mut promoted = bench.pair.replica.promote("second").unwrap();
    promoted.run("DELETE FROM log").unwrap();
    promoted.run("INSERT INTO t VALUES (2)").unwrap();
    let fired = promoted.rows("SELECT m FROM log ORDER BY id");
    assert_eq!(fired.unwrap(), expected.unwrap());
}
