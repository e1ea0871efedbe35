//! What must never pass in silence: whatever shows that a copy is not what it should be.

use tidegate_engine::testing::Replica;
use tidegate_engine::{Error, Seq, Spool, Store};

use crate::Bench;

const SETUP: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)
     INSERT INTO t VALUES (1, 'a'), (2, 'b')";

/// Changes a copy behind the daemon's back.
fn tamper(store: &Store, sql: &str) {
    let mut connection = store.internal().unwrap();
    connection.execute(sql, &[]).unwrap();
}

#[track_caller]
fn assert_stalls(bench: &mut Bench) {
    let position = bench.pair.replica.applier.position();
    let error = bench.pair.ship().unwrap_err();
    assert!(matches!(error, Error::Diverging(_)), "{error}");
    assert_eq!(bench.pair.replica.applier.position(), position);
    let mut reader = bench.pair.replica.store.reader().unwrap();
    let head = tidegate_engine::view::read_head(&mut reader).unwrap();
    assert_eq!(head, position, "nothing of the batch is left");
}

#[test]
fn a_row_that_is_not_on_the_source_is_a_conflict_and_is_not_replaced() {
    let mut bench = Bench::with(SETUP);
    tamper(
        &bench.pair.replica.store,
        "INSERT INTO t VALUES (50, 'planted')",
    );
    bench.run("INSERT INTO t VALUES (3, 'planted')");
    assert_stalls(&mut bench);
    tamper(&bench.pair.replica.store, "DELETE FROM t WHERE id = 50");
    bench.equal();
}

#[test]
fn another_schema_is_noticed() {
    for sql in [
        "DROP TABLE t",
        "ALTER TABLE t ADD COLUMN w",
        "ALTER TABLE t RENAME TO u",
    ] {
        let mut bench = Bench::with(SETUP);
        tamper(&bench.pair.replica.store, sql);
        bench.run("UPDATE t SET v = 'x' WHERE id = 1");
        assert_stalls(&mut bench);
    }
}

#[test]
fn a_schema_statement_that_fails_here_stalls() {
    let mut bench = Bench::with(SETUP);
    tamper(&bench.pair.replica.store, "CREATE TABLE twice(a)");
    bench.run("CREATE TABLE twice(a)");
    assert_stalls(&mut bench);
}

#[test]
fn a_batch_is_applied_once_and_in_order() {
    let mut bench = Bench::with(SETUP);
    bench.run("INSERT INTO t VALUES (3, 'c')");
    let source = &bench.pair.primary.store;
    let mut first = bench.pair.replica.fetch(source).unwrap().unwrap();
    bench.pair.replica.applier.apply(&mut first.spool).unwrap();
    let again = bench.pair.replica.applier.apply(&mut first.spool);
    assert!(matches!(again, Err(Error::Diverging(_))));
    let mut other = Replica::open(&bench.dir.path().join("other")).unwrap();
    let early = other.applier.apply(&mut first.spool);
    assert!(matches!(early, Err(Error::Diverging(_))));
    bench.equal();
}

#[test]
fn a_missing_schema_statement_is_an_error_at_the_source() {
    let mut bench = Bench::with(SETUP);
    bench.run("ALTER TABLE t ADD COLUMN w");
    tamper(
        &bench.pair.primary.store,
        "DELETE FROM _tidegate_ddl WHERE id = (SELECT max(id) FROM _tidegate_ddl)",
    );
    let error = bench.pair.ship().unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

#[test]
fn an_unknown_version_of_the_capture_table_is_not_read() {
    let mut bench = Bench::with(SETUP);
    bench.run("DELETE FROM t");
    for version in ["v1", "v3"] {
        let sql = format!("UPDATE turso_cdc_version SET version = '{version}'");
        tamper(&bench.pair.primary.store, &sql);
        let error = bench.pair.ship().unwrap_err();
        assert!(matches!(error, Error::Format(_)), "{error}");
    }
}

#[test]
fn a_log_that_was_dropped_is_fatal() {
    let bench = Bench::with(SETUP);
    tamper(&bench.pair.primary.store, "DROP TABLE turso_cdc");
    let mut reader = bench.pair.primary.store.reader().unwrap();
    let error = tidegate_engine::view::read_head(&mut reader).unwrap_err();
    assert!(error.is_fatal(), "{error}");
}

#[test]
fn a_damaged_batch_leaves_no_trace() {
    let mut bench = Bench::with(SETUP);
    bench.run("UPDATE t SET v = v || '!'\nALTER TABLE t ADD COLUMN w");
    let source = &bench.pair.primary.store;
    let batch = bench.pair.replica.fetch(source).unwrap().unwrap();
    bench.pair.replica.known = Default::default();
    let whole = batch.spool.part(0, usize::MAX).unwrap().unwrap().bytes;
    let position = bench.pair.replica.applier.position();
    for at in (0..whole.len()).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        for bytes in [&damaged[..], &whole[..at]] {
            let mut spool = Spool::new(bench.dir.path(), 1 << 20);
            spool.append(bytes).unwrap();
            let outcome = bench.pair.replica.applier.apply(&mut spool);
            assert!(outcome.is_err(), "byte {at} of {}", whole.len());
            assert_eq!(bench.pair.replica.applier.position(), position);
        }
    }
    bench.equal();
}

#[test]
fn a_position_beyond_the_log_is_not_fed() {
    let mut bench = Bench::with(SETUP);
    let mut other = Bench::with(SETUP);
    other.run("INSERT INTO t VALUES (7, 'more')");
    other.equal();
    assert!(other.pair.replica.applier.position() > Seq::ZERO);
    let error = other
        .pair
        .replica
        .follow(&bench.pair.primary.store)
        .unwrap_err();
    assert!(matches!(error, Error::SnapshotRequired(_)), "{error}");
    bench.equal();
}

#[test]
fn a_trigger_that_came_alive_on_a_replica_is_put_to_sleep_before_the_first_apply() {
    let mut bench = Bench::with(SETUP);
    bench.run("CREATE TABLE log(m)");
    bench.equal();
    tamper(
        &bench.pair.replica.store,
        "CREATE TRIGGER planted AFTER INSERT ON t BEGIN INSERT INTO log VALUES ('fired'); END",
    );
    let dir = bench.pair.replica.store.dir().to_owned();
    let Bench { pair, dir: _keep } = bench;
    let (primary, replica) = (pair.primary, pair.replica);
    drop(replica);
    let mut replica = Replica::open(&dir).unwrap();
    let mut primary = primary;
    primary.run("INSERT INTO t VALUES (9, 'z')").unwrap();
    replica.follow(&primary.store).unwrap();
    let differences = tidegate_engine::testing::differences(&primary.store, &replica.store);
    assert_eq!(differences.unwrap(), Vec::<String>::new());
}
