//! Copies that feed copies, promotion, and batches cut wherever a reader happened to look.

use tidegate_engine::testing::{Primary, Replica, differences};
use tidegate_engine::{Seq, Store};

use crate::Bench;

const SETUP: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, v)
     CREATE TABLE log(m)
     CREATE TRIGGER x AFTER INSERT ON t BEGIN INSERT INTO log VALUES (new.v); END
     INSERT INTO t(v) VALUES ('a'), ('b'), ('c')
     PRAGMA user_version = 3
     ALTER TABLE log RENAME TO journal
     INSERT INTO t(v) VALUES ('d')";

fn third(bench: &Bench) -> Replica {
    Replica::open(&bench.dir.path().join("third")).unwrap()
}

#[track_caller]
fn assert_equal(a: &Store, b: &Store) {
    let differences = differences(a, b).unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn a_replica_feeds_another_from_the_very_beginning() {
    let mut bench = Bench::with(SETUP);
    let mut third = third(&bench);
    third.follow(&bench.pair.replica.store).unwrap();
    assert_equal(&bench.pair.primary.store, &third.store);
    bench.run("UPDATE t SET v = 'x' WHERE id = 2\nDROP TRIGGER x\nDELETE FROM t WHERE id = 1");
    bench.equal();
    third.follow(&bench.pair.replica.store).unwrap();
    assert_equal(&bench.pair.primary.store, &third.store);
}

#[test]
fn after_a_promotion_ids_go_on_and_survivors_continue_without_a_snapshot() {
    let mut bench = Bench::with(SETUP);
    let mut third = third(&bench);
    // The third is behind, and catches up from the second after its promotion.
    third.follow(&bench.pair.primary.store).unwrap();
    bench.run("INSERT INTO t(v) VALUES ('e')\nCREATE TABLE more(a)\nINSERT INTO more VALUES (1)");
    bench.equal();
    let at = bench.pair.replica.applier.position();
    let mut second = bench.pair.replica.promote("second").unwrap();
    assert_eq!(opening_of(&mut second), (2, at.next()));
    second
        .script(
            "INSERT INTO t(v) VALUES ('f')
             ALTER TABLE more RENAME TO less
             INSERT INTO less VALUES (2)
             DELETE FROM t WHERE id < 3",
        )
        .unwrap();
    third.follow(&second.store).unwrap();
    assert_equal(&second.store, &third.store);
    let journal = second
        .rows("SELECT count(*) FROM journal WHERE m = 'f'")
        .unwrap();
    assert_eq!(journal, [[1.into()]], "the trigger is awake on the second");
    // The first had nothing that the second lacks, so it follows as it is.
    let Bench { pair, dir: _dir } = Bench {
        pair: tidegate_engine::testing::Pair {
            primary: bench.pair.primary,
            replica: third,
        },
        dir: bench.dir,
    };
    let tidegate_engine::testing::Pair {
        primary,
        replica: third,
    } = pair;
    let mut first = Replica::of_store(primary.into_store()).unwrap();
    first.follow(&third.store).unwrap();
    assert_equal(&second.store, &first.store);
}

fn opening_of(primary: &mut Primary) -> (u64, Seq) {
    let openings = tidegate_engine::openings::openings(primary.connection()).unwrap();
    let last = openings.last().expect("it has opened");
    (last.epoch, last.first_seq)
}

#[test]
fn roles_rotate_through_three_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Primary::open(&dir.path().join("a"), "a", true).unwrap();
    let mut second = Replica::open(&dir.path().join("b")).unwrap();
    let mut third = Replica::open(&dir.path().join("c")).unwrap();
    primary.script(SETUP).unwrap();
    for round in 0..6 {
        let script = format!(
            "INSERT INTO t(v) VALUES ('round {round}')
             CREATE TABLE r{round}(a)
             INSERT INTO r{round} SELECT id FROM t
             UPDATE t SET v = v || '.' WHERE id % 2 = {round} % 2"
        );
        primary.script(&script).unwrap();
        second.follow(&primary.store).unwrap();
        third.follow(&second.store).unwrap();
        assert_equal(&primary.store, &third.store);
        let next = second.promote("next").unwrap();
        second = third;
        third = Replica::of_store(primary.into_store()).unwrap();
        primary = next;
        third.follow(&primary.store).unwrap();
        assert_equal(&primary.store, &third.store);
    }
}

#[test]
fn a_packed_row_may_reach_back_before_the_position_asked_for() {
    let mut bench = Bench::with("CREATE TABLE t(id INTEGER PRIMARY KEY, v)");
    let mut third = third(&bench);
    third.follow(&bench.pair.primary.store).unwrap();
    // The third goes on in small steps from the primary, the second in one large one.
    bench.run("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')");
    third.follow(&bench.pair.primary.store).unwrap();
    bench.run("DELETE FROM t WHERE id = 2\nINSERT INTO t VALUES (4, 'd')");
    bench.equal();
    third.follow(&bench.pair.replica.store).unwrap();
    assert_equal(&bench.pair.primary.store, &third.store);
    // And it stored that stretch so that a fourth can be fed from it.
    let mut fourth = Replica::open(&bench.dir.path().join("fourth")).unwrap();
    fourth.follow(&third.store).unwrap();
    assert_equal(&bench.pair.primary.store, &fourth.store);
}

#[test]
fn every_head_is_a_place_to_cut() {
    // Copies that stop at each head in turn, then continue in one batch from another source.
    let script: Vec<&str> = "CREATE TABLE t(id INTEGER PRIMARY KEY, v UNIQUE)
         INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')
         UPDATE t SET id = 9 WHERE id = 1
         ALTER TABLE t RENAME TO u
         CREATE TABLE t(id INTEGER PRIMARY KEY, w)
         INSERT INTO t VALUES (2, 'other'), (9, 'other')
         DELETE FROM u WHERE id = 2
         ALTER TABLE u ADD COLUMN x DEFAULT 7
         UPDATE u SET x = 8 WHERE id = 9
         DROP TABLE t
         ALTER TABLE u RENAME TO t
         INSERT INTO t(v) VALUES ('a2')
         UPDATE t SET v = 'b' WHERE v = 'c'"
        .lines()
        .map(str::trim)
        .collect();
    for cut in 0..script.len() {
        let mut bench = Bench::new();
        let mut third = third(&bench);
        for (index, line) in script.iter().enumerate() {
            bench.run(line);
            if index == cut {
                third.follow(&bench.pair.primary.store).unwrap();
            }
            if index % 3 == 1 {
                bench.equal();
            }
        }
        bench.equal();
        third.follow(&bench.pair.replica.store).unwrap();
        assert_equal(&bench.pair.primary.store, &third.store);
    }
}

#[test]
fn an_adopted_file_cannot_be_fed_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("adopted")).unwrap();
    let mut internal = store.internal().unwrap();
    internal.execute("CREATE TABLE old(a)", &[]).unwrap();
    internal.execute("INSERT INTO old VALUES (1)", &[]).unwrap();
    drop(internal);
    let next = tidegate_engine::openings::NextEpoch::Same;
    let primary = Primary::open_epoch(store, "a", true, next).unwrap();
    let mut replica = Replica::open(&dir.path().join("b")).unwrap();
    let error = replica.follow(&primary.store).unwrap_err();
    assert_eq!(error.code(), "TIDEGATE_NOT_READY", "{error}");
}
