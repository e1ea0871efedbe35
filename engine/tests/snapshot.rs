//! A snapshot is a committed state, whole and checked, or it is nothing.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_engine::catalogue::catalogue;
use tidegate_engine::digest::{self, KeyRange, RangeDigest};
use tidegate_engine::snapshot::{Content, Installer, Snapshot};
use tidegate_engine::{Error, ReadView, Result, Seq, Store, triggers};
use xxhash_rust::xxh3::xxh3_128;

const SCHEMA: [&str; 8] = [
    "CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT UNIQUE, balance INTEGER NOT NULL)",
    "CREATE TABLE note (v)",
    "CREATE INDEX note_v ON note (v)",
    "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT)",
    "CREATE TRIGGER z_first AFTER UPDATE ON account BEGIN \
       INSERT INTO audit (what) VALUES (new.owner); END",
    "CREATE TRIGGER a_second AFTER DELETE ON account BEGIN \
       INSERT INTO audit (what) VALUES ('gone'); END",
    "PRAGMA user_version = 77",
    "INSERT INTO _tidegate_slots VALUES ('n2', 5, 0, 'active')",
];

fn source(dir: &Path) -> Store {
    let store = Store::open(dir).unwrap();
    let mut writer = store.capturing(true).unwrap();
    for statement in SCHEMA {
        writer.execute(statement, &[]).unwrap();
    }
    writer.execute("BEGIN IMMEDIATE", &[]).unwrap();
    for id in 1..=500i64 {
        let sql = "INSERT INTO account VALUES (?, 'owner ' || ?1, 100)";
        writer.execute(sql, &[id.into()]).unwrap();
    }
    for rowid in [i64::MIN, -7, 0, 12, i64::MAX] {
        let sql = "INSERT INTO note (rowid, v) VALUES (?, randomblob(9000))";
        writer.execute(sql, &[rowid.into()]).unwrap();
    }
    writer
        .execute("DELETE FROM note WHERE rowid = 0", &[])
        .unwrap();
    writer.execute("COMMIT", &[]).unwrap();
    drop(writer);
    store
}

fn send(snapshot: &Snapshot, data_dir: &Path) -> Result<Installer> {
    let mut installer = Installer::begin(data_dir, snapshot.content().bytes)?;
    let mut chunk = vec![0; 10_000];
    loop {
        let read = snapshot.read_at(installer.bytes(), &mut chunk)?;
        if read == 0 {
            return Ok(installer);
        }
        installer.write(&chunk[..read])?;
    }
}

fn bytes_of(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = vec![0; snapshot.content().bytes as usize];
    assert_eq!(snapshot.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn send_bytes(bytes: &[u8], data_dir: &Path, expected: Content) -> Result<Seq> {
    let mut installer = Installer::begin(data_dir, bytes.len() as u64)?;
    installer.write(bytes)?;
    let checked = installer.finish(expected)?;
    let position = checked.position();
    checked.install()?;
    Ok(position)
}

/// The log included: a node that starts from a snapshot can feed others.
fn digests(store: &Store) -> (Seq, Vec<RangeDigest>, Vec<String>) {
    let mut reader = store.reader().unwrap();
    let mut view = ReadView::begin(&mut reader, store.gate()).unwrap();
    let tables = ["account", "note", "audit", "turso_cdc", "_tidegate_history"];
    let digests = tables
        .iter()
        .map(|t| digest::digest_range(&mut view, t, KeyRange::ALL).unwrap())
        .collect();
    let catalogue = catalogue(&mut view).unwrap();
    let mut texts: Vec<String> = catalogue.objects.into_iter().map(|o| o.text).collect();
    texts.push(format!("{:?}", catalogue.sequences));
    texts.push(format!("{}", catalogue.user_version));
    (view.head(), digests, texts)
}

#[test]
fn rows_rowids_schema_and_log_arrive_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let snapshot = Snapshot::take(&store).unwrap();
    let target = dir.path().join("b");
    let checked = send(&snapshot, &target)
        .unwrap()
        .finish(snapshot.content())
        .unwrap();
    assert_eq!(checked.position(), snapshot.position());
    checked.install().unwrap();
    let copy = Store::open(&target).unwrap();
    assert_eq!(digests(&copy), digests(&store));
    assert_eq!(digests(&copy).0, snapshot.position());
}

#[test]
fn triggers_sleep_in_the_copy_and_followers_of_the_sender_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let snapshot = Snapshot::take(&store).unwrap();
    let target = dir.path().join("b");
    send_bytes(&bytes_of(&snapshot), &target, snapshot.content()).unwrap();
    let copy = Store::open(&target).unwrap();
    let mut here = copy.internal().unwrap();
    assert!(triggers::live_triggers(&mut here).unwrap().is_empty());
    let mut there = store.reader().unwrap();
    assert_eq!(
        triggers::trigger_set(&mut here).unwrap(),
        triggers::trigger_set(&mut there).unwrap()
    );
    let slots = here.query_integer("SELECT count(*) FROM _tidegate_slots", &[]);
    assert_eq!(slots.unwrap(), Some(0));
}

#[test]
fn a_snapshot_beside_a_writer_is_one_committed_state() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = store.capturing(true).unwrap();
            let mut from = 1;
            while !stop.load(Ordering::Relaxed) {
                writer.execute("BEGIN IMMEDIATE", &[]).unwrap();
                let (a, b) = (from % 500 + 1, (from * 7) % 500 + 1);
                let sql = "UPDATE account SET balance = balance + ? WHERE id = ?";
                writer.execute(sql, &[5.into(), a.into()]).unwrap();
                writer.execute(sql, &[(-5).into(), b.into()]).unwrap();
                writer.execute("COMMIT", &[]).unwrap();
                from += 1;
            }
        });
        for round in 0..5 {
            let snapshot = Snapshot::take(&store).unwrap();
            let target = dir.path().join(format!("b{round}"));
            let position = send_bytes(&bytes_of(&snapshot), &target, snapshot.content()).unwrap();
            assert_eq!(position, snapshot.position());
            let copy = Store::open(&target).unwrap();
            let mut reader = copy.reader().unwrap();
            let sum = reader.query_integer("SELECT sum(balance) FROM account", &[]);
            assert_eq!(sum.unwrap(), Some(50_000));
            let audited = reader.query_integer("SELECT count(*) FROM audit", &[]);
            assert_eq!(audited.unwrap().map(|n| n % 2), Some(0));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn nothing_is_held_and_nothing_is_left_once_a_snapshot_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let snapshot = Snapshot::take(&store).unwrap();
    assert!(store.gate().drain(Duration::ZERO).is_some());
    let names: Vec<String> = std::fs::read_dir(store.dir())
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        !names.iter().any(|n| n.starts_with("outgoing")),
        "{names:?}"
    );
    let mut writer = store.capturing(true).unwrap();
    writer.execute("DELETE FROM account", &[]).unwrap();
    assert_eq!(xxh3_128(&bytes_of(&snapshot)), snapshot.content().hash);
}

#[test]
fn a_snapshot_can_be_given_up_half_way() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let given_up = Snapshot::take_unless(&store, &|| {
        assert!(store.gate().has_long(), "checkpoints do not wait for it");
        true
    });
    assert!(matches!(given_up.err(), Some(Error::Closed)));
    assert!(store.gate().drain(Duration::ZERO).is_some());
}

#[test]
fn half_a_snapshot_is_never_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let snapshot = Snapshot::take(&store).unwrap();
    let bytes = bytes_of(&snapshot);
    let target = dir.path().join("b");
    drop(source(&target));
    let before = digests(&Store::open(&target).unwrap());

    let half = send_bytes(&bytes[..bytes.len() / 2], &target, snapshot.content());
    assert!(matches!(half, Err(Error::Format(_))), "{half:?}");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3] ^= 1;
    let flipped = send_bytes(&flipped, &target, snapshot.content());
    assert!(matches!(flipped, Err(Error::Format(_))), "{flipped:?}");
    let longer = [&bytes[..], b"x"].concat();
    assert!(send_bytes(&longer, &target, snapshot.content()).is_err());

    assert_eq!(digests(&Store::open(&target).unwrap()), before);
    let left = std::fs::read_dir(&target).unwrap();
    let incoming = left.filter(|e| {
        let name = e.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with("incoming")
    });
    assert_eq!(incoming.count(), 0);
}

#[test]
fn a_database_that_was_damaged_before_it_was_sent_is_not_installed() {
    let dir = tempfile::tempdir().unwrap();
    let store = source(&dir.path().join("a"));
    let snapshot = Snapshot::take(&store).unwrap();
    let mut bytes = bytes_of(&snapshot);
    let page = bytes.len() / 4096 / 2 * 4096;
    bytes[page..page + 4096].fill(0x55);
    let content = Content {
        bytes: bytes.len() as u64,
        hash: xxh3_128(&bytes),
    };
    let outcome = send_bytes(&bytes, &dir.path().join("b"), content);
    assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
}

#[test]
fn bytes_that_are_no_database_of_ours_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = dir.path().join("foreign.db");
    let sqlite = rusqlite::Connection::open(&foreign).unwrap();
    sqlite.execute_batch("CREATE TABLE t (v)").unwrap();
    drop(sqlite);
    for bytes in [std::fs::read(&foreign).unwrap(), vec![7; 8192]] {
        let content = Content {
            bytes: bytes.len() as u64,
            hash: xxh3_128(&bytes),
        };
        assert!(send_bytes(&bytes, &dir.path().join("b"), content).is_err());
    }
}
