//! A node's role: openings, following, and a database that was rolled back.

use tidegate_engine::openings::openings;
use tidegate_engine::{
    Applier, BatchLimits, Engine, Error, FinalsKnown, Head, NextEpoch, Opening, Options, ReadView,
    Role,
};

use crate::support::{Node, code, eventually, integer, ok, run};

fn history(engine: &Engine) -> Vec<Opening> {
    openings(&mut engine.store().reader().unwrap()).unwrap()
}

/// Ships everything from one engine to the other, as the stream does.
pub fn ship(from: &Engine, to: &Engine, applier: &mut Applier, known: &mut FinalsKnown) {
    let mut connection = from.store().reader().unwrap();
    let mut view = ReadView::begin(&mut connection, from.store().gate()).unwrap();
    let limits = BatchLimits::default();
    let batch = view
        .read_batch(applier.position(), known, to.store().dir(), &limits)
        .unwrap();
    let Some(mut batch) = batch else { return };
    let applied = applier.apply(&mut batch.spool).unwrap();
    to.note_applied(Head {
        seq: applied.to,
        committed_ms: applied.committed_ms,
    })
    .unwrap();
    to.maintain(false);
}

#[tokio::test]
async fn each_start_opens_the_history_anew_and_a_promotion_opens_an_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new(dir.path());
    for start in 1..=2 {
        let engine = Engine::open(options.clone()).unwrap();
        engine.start_primary("n1", "start").unwrap();
        let openings = history(&engine);
        assert_eq!(openings.len(), start);
        assert!(openings.iter().all(|o| o.epoch == 1 && o.node == "n1"));
        assert!(engine.head().borrow().seq >= openings[start - 1].first_seq);
        ok(&mut engine.session(), "CREATE TABLE IF NOT EXISTS t(a)").await;
    }
    let engine = Engine::open(options).unwrap();
    let opening = engine
        .start_primary_in("n1", "promotion", NextEpoch::Next)
        .unwrap();
    assert_eq!(opening.epoch, 2);
    assert_eq!(history(&engine).last(), Some(&opening));
    assert!(engine.start_primary("n1", "twice").is_err());
}

#[tokio::test]
async fn a_replica_answers_reads_from_what_was_applied_and_refuses_writes() {
    let primary = Node::start();
    let mut source = primary.session();
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path());
    options.wal_checkpoint_bytes = 1 << 20;
    let replica = Engine::open(options).unwrap();
    let mut applier = replica.start_replica().unwrap();
    assert_eq!(replica.role(), Role::Replica);
    let mut known = FinalsKnown::default();
    let mut session = replica.session();

    ok(&mut source, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)").await;
    ok(&mut source, "INSERT INTO t VALUES (1, 'a')").await;
    ship(&primary.engine, &replica, &mut applier, &mut known);
    let read = ok(&mut session, "SELECT v FROM t").await;
    assert_eq!(read.single().unwrap().as_text(), Some("a"));
    assert_eq!(read.position, Some(primary.engine.head().borrow().seq));
    for sql in [
        "INSERT INTO t VALUES (2, 'b')",
        "DROP TABLE t",
        "BEGIN IMMEDIATE",
    ] {
        assert_eq!(
            code(&run(&mut session, sql).await),
            "TIDEGATE_READ_ONLY",
            "{sql}"
        );
    }
    ok(&mut session, "BEGIN TRANSACTION READONLY").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
    ok(&mut session, "COMMIT").await;

    // Its log stays bounded, and a schema change is seen.
    for _ in 0..40 {
        let blobs = "INSERT INTO t(v) SELECT randomblob(20000) FROM generate_series(1, 10)";
        ok(&mut source, blobs).await;
        ship(&primary.engine, &replica, &mut applier, &mut known);
    }
    assert!(replica.stats().wal_bytes_seen_max < 3 << 20);
    assert!(replica.stats().checkpoints_complete > 2);
    ok(&mut source, "ALTER TABLE t RENAME TO u").await;
    ship(&primary.engine, &replica, &mut applier, &mut known);
    assert_eq!(integer(&mut session, "SELECT count(*) FROM u").await, 401);
    replica.maintain(true);
    assert_eq!(replica.stats().wal_bytes, 0);

    // Promoted, it goes on where it was.
    drop(applier);
    let head = replica.head().borrow().seq;
    let opening = replica
        .start_primary_in("n2", "promotion", NextEpoch::Next)
        .unwrap();
    assert_eq!((opening.epoch, opening.first_seq), (2, head.next()));
    ok(&mut session, "INSERT INTO u VALUES (9999, 'mine')").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM u").await, 402);
}

#[tokio::test]
async fn a_database_below_its_high_water_mark_was_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("d");
    let database = data.join("tidegate.db");
    let backup = dir.path().join("backup");
    let options = Options::new(&data);
    {
        let engine = Engine::open(options.clone()).unwrap();
        engine.start_primary("n1", "start").unwrap();
        ok(&mut engine.session(), "CREATE TABLE t(a)").await;
        engine.shutdown();
        std::fs::copy(&database, &backup).unwrap();
    }
    {
        let engine = Engine::open(options.clone()).unwrap();
        assert_eq!(engine.rolled_back(), None);
        engine.start_primary("n1", "start").unwrap();
        ok(&mut engine.session(), "INSERT INTO t VALUES (1)").await;
    }
    std::fs::copy(&backup, &database).unwrap();
    let engine = Engine::open(options).unwrap();
    let rolled_back = engine.rolled_back().expect("it was rolled back");
    assert!(rolled_back.mark > rolled_back.head);
    engine.accept_rollback().unwrap();
    assert_eq!(engine.rolled_back(), None);
}

#[tokio::test]
async fn the_nodes_own_work_runs_between_the_clients_writes() {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    for _ in 0..20 {
        ok(&mut session, "INSERT INTO t VALUES (1)").await;
    }
    let head = node.engine.head().borrow().seq;
    let engine = node.engine.clone();
    let trim = move || engine.trim(head, 1_000, Vec::new);
    let trimmed = tokio::task::spawn_blocking(trim).await.unwrap().unwrap();
    assert!(trimmed.rows > 20);
    ok(&mut session, "INSERT INTO t VALUES (2)").await;
    assert!(node.engine.head().borrow().seq > head);
    // What fails in such work is rolled back and told.
    let engine = node.engine.clone();
    let fail = move || {
        engine.with_permit::<()>(|connection| {
            connection.execute("BEGIN IMMEDIATE", &[])?;
            Err(Error::NoSpace("for a test".into()))
        })
    };
    let failed = tokio::task::spawn_blocking(fail).await.unwrap();
    assert!(matches!(failed, Err(Error::NoSpace(_))));
    ok(&mut session, "INSERT INTO t VALUES (3)").await;
    eventually("the log is emptied", || node.engine.stats().wal_bytes == 0).await;
}

#[tokio::test]
async fn a_fenced_node_commits_nothing_and_goes_on_reading() {
    let node = Node::start();
    let mut session = node.session();
    let mut open = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    ok(&mut open, "BEGIN IMMEDIATE").await;
    ok(&mut open, "INSERT INTO t VALUES (1)").await;
    let mut reading = node.session();
    ok(&mut reading, "BEGIN").await;
    assert_eq!(integer(&mut reading, "SELECT count(*) FROM t").await, 0);

    node.engine.fence("n2 leads in epoch 2");
    // What was under way ends at its COMMIT.
    let late = run(&mut open, "COMMIT").await;
    assert!(
        matches!(&late, Err(Error::Fenced(why)) if why == "n2 leads in epoch 2"),
        "{late:?}"
    );
    assert!(open.is_autocommit());
    for sql in [
        "INSERT INTO t VALUES (2)",
        "CREATE TABLE u(a)",
        "BEGIN IMMEDIATE",
    ] {
        assert_eq!(
            code(&run(&mut session, sql).await),
            "TIDEGATE_FENCED",
            "{sql}"
        );
    }
    assert_eq!(integer(&mut reading, "SELECT count(*) FROM t").await, 0);
    let first_write = run(&mut reading, "INSERT INTO t VALUES (3)").await;
    assert_eq!(code(&first_write), "TIDEGATE_FENCED");
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 0);

    node.engine.lift_fence();
    ok(&mut session, "INSERT INTO t VALUES (4)").await;
    assert_eq!(integer(&mut session, "SELECT count(*) FROM t").await, 1);
}

#[tokio::test]
async fn a_node_that_may_not_begin_to_lead_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let mut session = engine.session();
    assert_eq!(
        code(&run(&mut session, "CREATE TABLE t(a)").await),
        "TIDEGATE_READ_ONLY"
    );
    engine.fence("n1 and n2 both opened epoch 2");
    assert_eq!(
        code(&run(&mut session, "CREATE TABLE t(a)").await),
        "TIDEGATE_FENCED"
    );
    assert_eq!(
        integer(
            &mut session,
            "SELECT count(*) FROM sqlite_schema WHERE name = 't'"
        )
        .await,
        0
    );
}
