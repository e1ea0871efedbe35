//! Trimming while the engine serves: never past a slot, between two batches on a replica, and
//! whole or not at all when the process is killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidegate_engine::adapter::Connection;
use tidegate_engine::slots::{self, slots};
use tidegate_engine::{Engine, Error, Options, Seq, Slot, SlotState, Store, meta, view};

use crate::support::{Node, ok};

const CHILD: &str = "TIDEGATE_TEST_TRIM_CHILD_DIR";

fn slot(node: &str, from: u64, state: SlotState) -> Slot {
    Slot {
        node: node.into(),
        from: Seq::new(from),
        seen_ms: 1_790_000_000_000,
        state,
    }
}

async fn with_rows(rows: u64) -> Node {
    let node = Node::start();
    let mut session = node.session();
    ok(&mut session, "CREATE TABLE t(a)").await;
    let insert = format!("INSERT INTO t SELECT value FROM generate_series(1, {rows})");
    ok(&mut session, &insert).await;
    node
}

async fn permitted<T: Send + 'static>(
    engine: &Arc<Engine>,
    work: impl FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let engine = engine.clone();
    let done = tokio::task::spawn_blocking(move || engine.with_permit(work)).await;
    done.unwrap()
}

async fn trim(engine: &Arc<Engine>, up_to: u64, slots: Vec<Slot>) -> Result<Seq, Error> {
    let engine = engine.clone();
    let trim = move || engine.trim(Seq::new(up_to), 1_000_000, move || slots);
    let trimmed = tokio::task::spawn_blocking(trim).await.unwrap();
    trimmed.map(|trimmed| trimmed.floor)
}

#[tokio::test]
async fn a_trim_that_would_pass_a_slot_does_nothing_at_all() {
    let node = with_rows(100).await;
    let engine = &node.engine;
    let floor = engine.floor();
    let held = slot("n2", 40, SlotState::Active);
    let stored = held.clone();
    permitted(engine, move |c| slots::store(c, &[stored]))
        .await
        .unwrap();
    for slots in [vec![], vec![held.clone()]] {
        let passed = trim(engine, 41, slots).await;
        assert!(passed.unwrap_err().is_fatal());
    }
    assert_eq!(*floor.borrow(), Seq::ZERO);
    assert_eq!(trim(engine, 40, vec![]).await.unwrap(), Seq::new(40));
    assert_eq!(*floor.borrow(), Seq::new(40));
    // A newer position is stored with the trim that needs it; a slot given up holds nothing.
    let moved = slot("n2", 60, SlotState::Active);
    let given_up = slot("n3", 50, SlotState::NeedsSnapshot);
    let now = vec![moved, given_up];
    assert_eq!(trim(engine, 60, now.clone()).await.unwrap(), Seq::new(60));
    let mut reader = engine.store().reader().unwrap();
    assert_eq!(slots(&mut reader).unwrap(), now);
    assert!(permitted(engine, |c| slots::remove(c, "n2")).await.unwrap());
    assert!(!permitted(engine, |c| slots::remove(c, "n2")).await.unwrap());
    assert_eq!(trim(engine, 90, vec![]).await.unwrap(), Seq::new(90));
}

#[tokio::test]
async fn a_replicas_own_work_waits_for_the_batch_that_is_being_applied() {
    let primary = with_rows(30_000).await;
    let dir = tempfile::tempdir().unwrap();
    let replica = Engine::open(Options::new(dir.path())).unwrap();
    let mut applier = replica.start_replica().unwrap();
    let trimming = {
        let replica = replica.clone();
        std::thread::spawn(move || {
            let mut trims = 0;
            // Works beside the applying below until all of it has arrived and is trimmed.
            while *replica.floor().borrow() < Seq::new(29_000) {
                let up_to = replica.head().borrow().seq;
                let slots = move || vec![slot("n3", up_to.get(), SlotState::Active)];
                replica.trim(up_to, 500, slots).unwrap();
                trims += 1;
            }
            trims
        })
    };
    let mut known = tidegate_engine::FinalsKnown::default();
    let mut session = primary.session();
    while !trimming.is_finished() {
        ok(&mut session, "INSERT INTO t VALUES (0)").await;
        super::roles::ship(&primary.engine, &replica, &mut applier, &mut known);
    }
    assert!(trimming.join().unwrap() > 1);
    let head = primary.engine.head().borrow().seq;
    super::roles::ship(&primary.engine, &replica, &mut applier, &mut known);
    assert_eq!(applier.position(), head);
    let found =
        tidegate_engine::testing::differences(primary.engine.store(), replica.store()).unwrap();
    assert!(found.is_empty(), "{found:#?}");
    replica.shutdown();
    assert!(matches!(
        trim(&replica, 29_500, vec![]).await,
        Err(Error::Closed)
    ));
}

#[test]
fn a_process_killed_while_it_trims_has_trimmed_whole_chunks_or_nothing() {
    if let Ok(dir) = std::env::var(CHILD) {
        return trim_until_killed(Path::new(&dir));
    }
    let dir = tempfile::tempdir().unwrap();
    let mut floor = Seq::ZERO;
    for _ in 0..6 {
        let told = run_and_kill(dir.path());
        let found = check(dir.path());
        assert!(found >= told, "the floor {found} fell behind {told}");
        assert!(found > floor, "nothing was trimmed");
        floor = found;
    }
}

/// Starts the child, lets it trim some chunks, kills it. Gives the highest floor it told.
fn run_and_kill(dir: &Path) -> Seq {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "trims::a_process_killed_while_it_trims_has_trimmed_whole_chunks_or_nothing",
        ])
        .arg("--nocapture")
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let floors = lines.filter_map(|line| line.unwrap().strip_prefix("floor ")?.parse().ok());
    let told = floors.take(15).last().expect("a floor");
    child.kill().unwrap();
    child.wait().unwrap();
    Seq::new(told)
}

/// The log begins right after the floor, and the slot that allowed the trim lies on it.
fn check(dir: &Path) -> Seq {
    let store = Store::open(dir).unwrap();
    let mut reader = store.reader().unwrap();
    let floor = meta::floor(&mut reader).unwrap();
    let head = view::read_head(&mut reader).unwrap();
    let number = |reader: &mut Connection, sql: &str| reader.query_integer(sql, &[]).unwrap();
    let first = number(&mut reader, "SELECT min(change_id) FROM turso_cdc");
    assert_eq!(first, Some(floor.to_sql() + 1), "the head is {head}");
    let rows = number(&mut reader, "SELECT count(*) FROM turso_cdc").unwrap();
    assert_eq!(rows.unsigned_abs(), head.get() - floor.get());
    let slots = slots(&mut reader).unwrap();
    assert!(slots[0].from >= floor, "{slots:?} and {floor}");
    let healthy = reader.query_value("PRAGMA integrity_check", &[]).unwrap();
    assert_eq!(healthy.as_text(), Some("ok"));
    floor
}

fn trim_until_killed(dir: &Path) {
    let engine = Engine::open(Options::new(dir)).unwrap();
    engine.start_primary("n1", "test").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut session = engine.session();
    runtime.block_on(ok(&mut session, "CREATE TABLE IF NOT EXISTS t(a)"));
    loop {
        let insert = "INSERT INTO t SELECT value FROM generate_series(1, 2000)";
        runtime.block_on(ok(&mut session, insert));
        let up_to = engine.head().borrow().seq;
        let slots = move || vec![slot("n2", up_to.get(), SlotState::Active)];
        let mut trimmed = engine.trim(up_to, 150, slots).unwrap();
        while trimmed.more {
            let line = format!("floor {}\n", trimmed.floor);
            std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
            trimmed = engine.trim(up_to, 150, slots).unwrap();
        }
    }
}
