//! Trimming: the floor rises with the deletion, and below it nobody is fed.

use tidegate_engine::trim::trim_chunk;
use tidegate_engine::{Error, Seq, Store, meta};

use crate::Bench;

fn trim_all(store: &Store, up_to: Seq) -> Seq {
    let mut connection = store.internal().unwrap();
    loop {
        let trimmed = trim_chunk(&mut connection, up_to, 7, &[]).unwrap();
        assert!(trimmed.rows <= 7, "{trimmed:?}");
        if !trimmed.more {
            return trimmed.floor;
        }
    }
}

#[test]
fn a_trimmed_log_feeds_from_its_floor_on_and_not_below() {
    let mut bench = Bench::with(
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v)
         INSERT INTO t VALUES (1, 'a'), (2, 'b')
         ALTER TABLE t ADD COLUMN w",
    );
    let applied = bench.pair.replica.applier.position();
    let floor = trim_all(&bench.pair.primary.store, applied);
    assert_eq!(floor, Seq::new(applied.get() - 1), "the newest row stays");
    bench.run("INSERT INTO t VALUES (3, 'c', 1)");
    bench.equal();
    bench.pair.replica =
        tidegate_engine::testing::Replica::open(&bench.dir.path().join("new")).unwrap();
    let error = bench.pair.ship().unwrap_err();
    assert!(matches!(error, Error::SnapshotRequired(_)), "{error}");
}

#[test]
fn everything_may_be_asked_to_go_but_the_newest_row_stays() {
    let mut bench = Bench::with("CREATE TABLE t(a)");
    bench.run("INSERT INTO t VALUES (1), (2), (3)");
    let head = bench.pair.primary.head().unwrap();
    trim_all(&bench.pair.primary.store, Seq::new(1 << 40));
    assert_eq!(bench.pair.primary.head().unwrap(), head);
    bench.run("INSERT INTO t VALUES (4)");
    assert!(bench.pair.primary.head().unwrap() > head, "ids go on");
}

#[test]
fn a_replica_trims_its_packed_log_and_still_feeds_others() {
    let mut bench = Bench::new();
    for id in 0..20 {
        bench.run(&format!(
            "CREATE TABLE t{id}(a)\nINSERT INTO t{id} VALUES ({id})"
        ));
        bench.equal();
    }
    let middle = bench.pair.replica.applier.position();
    let third_dir = bench.dir.path().join("third");
    let mut third = tidegate_engine::testing::Replica::open(&third_dir).unwrap();
    third.follow(&bench.pair.replica.store).unwrap();
    trim_all(&bench.pair.replica.store, middle);
    let mut reader = bench.pair.replica.store.reader().unwrap();
    let rows = |reader: &mut tidegate_engine::adapter::Connection, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        reader.query_integer(&sql, &[]).unwrap().unwrap()
    };
    assert_eq!(rows(&mut reader, "_tidegate_ddl"), 0);
    assert_eq!(rows(&mut reader, "turso_cdc"), 1);
    assert!(rows(&mut reader, "_tidegate_keys") <= 1);
    assert!(meta::floor(&mut reader).unwrap() < middle);
    drop(reader);
    bench.run("INSERT INTO t3 VALUES (33)");
    bench.pair.ship().unwrap();
    third.follow(&bench.pair.replica.store).unwrap();
    assert_eq!(
        third.applier.position(),
        bench.pair.replica.applier.position()
    );
}

#[test]
fn the_floor_never_falls() {
    let mut bench = Bench::with("CREATE TABLE t(a)");
    bench.run("INSERT INTO t VALUES (1), (2)");
    let head = bench.pair.primary.head().unwrap();
    let floor = trim_all(&bench.pair.primary.store, head);
    assert_eq!(trim_all(&bench.pair.primary.store, Seq::new(1)), floor);
    let mut connection = bench.pair.primary.store.internal().unwrap();
    assert!(
        meta::raise_floor(&mut connection, Seq::ZERO)
            .unwrap_err()
            .is_fatal()
    );
}
