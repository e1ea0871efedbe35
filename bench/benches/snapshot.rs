//! A snapshot's two halves beside `cp` and an fsync of the same file, in one run.
//!
//! The bar (P8): taking and receiving run at 60 % of `cp` with fsync or more, and memory
//! stays flat. Lanes are interleaved and the median of the rounds counts. The size in MiB is
//! the first number among the arguments; 256 without one.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_engine::snapshot::{Checked, Installer, Snapshot};
use tidegate_engine::store::{Store, Synchronous};

const ROUNDS: usize = 3;
const ROW_BYTES: u64 = 1_000;
const CACHE_KIB: u32 = 2_000;

fn main() {
    let mib: u64 = std::env::args()
        .filter_map(|argument| argument.parse().ok())
        .next()
        .unwrap_or(256);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = filled(&dir.path().join("data"), mib << 20);
    let bytes = std::fs::metadata(store.database_path())
        .expect("the file")
        .len();
    let idle_kib = resident_kib();
    let mut lanes: [Vec<Duration>; 3] = Default::default();
    for round in 0..ROUNDS {
        let copy = dir.path().join("copy");
        lanes[0].push(timed(|| copy_and_sync(&store.database_path(), &copy)));
        std::fs::remove_file(&copy).expect("removed");
        let mut snapshot = None;
        lanes[1].push(timed(|| {
            snapshot = Some(Snapshot::take(&store).expect("a snapshot"))
        }));
        let snapshot = snapshot.expect("taken");
        let target = dir.path().join(format!("received-{round}"));
        lanes[2].push(timed(|| drop(receive(&snapshot, &target))));
        std::fs::remove_dir_all(&target).expect("removed");
    }
    println!("{} MiB, median of {ROUNDS}", bytes >> 20);
    let reference = median(&mut lanes[0]);
    let names = ["cp + fsync", "take", "receive, check, sync"];
    for (name, lane) in names.iter().zip(&mut lanes) {
        let time = median(lane);
        println!(
            "{name:22} {:8.0} MB/s  {:4.0} % of cp",
            bytes as f64 / 1e6 / time.as_secs_f64(),
            100.0 * reference.as_secs_f64() / time.as_secs_f64()
        );
    }
    println!(
        "memory: {} KiB idle, {} KiB at the highest",
        idle_kib,
        peak_kib()
    );
}

fn receive(snapshot: &Snapshot, target: &Path) -> Checked {
    let mut installer = Installer::begin(target, snapshot.content().bytes).expect("an installer");
    let mut chunk = vec![0; 256 << 10];
    loop {
        let read = snapshot
            .read_at(installer.bytes(), &mut chunk)
            .expect("a chunk");
        if read == 0 {
            return installer.finish(snapshot.content()).expect("whole");
        }
        installer.write(&chunk[..read]).expect("written");
    }
}

fn copy_and_sync(from: &Path, to: &Path) {
    let mut from = File::open(from).expect("the file");
    let mut to = File::create(to).expect("a copy");
    let mut chunk = vec![0; 256 << 10];
    loop {
        let read = from.read(&mut chunk).expect("read");
        if read == 0 {
            break;
        }
        to.write_all(&chunk[..read]).expect("written");
    }
    to.sync_all().expect("synced");
}

fn filled(dir: &Path, bytes: u64) -> Store {
    let store = Store::open_with(dir, Synchronous::Normal, CACHE_KIB).expect("a store");
    let mut connection = store.internal().expect("a connection");
    connection
        .execute(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v BLOB)",
            &[],
        )
        .expect("a table");
    connection
        .execute("CREATE INDEX t_k ON t (k)", &[])
        .expect("an index");
    let rows = bytes / ROW_BYTES;
    for begin in (0..rows).step_by(20_000) {
        connection.execute("BEGIN IMMEDIATE", &[]).expect("BEGIN");
        for id in begin..rows.min(begin + 20_000) {
            let row = [
                (id as i64).into(),
                vec![id as u8; ROW_BYTES as usize].into(),
            ];
            let sql = "INSERT INTO t VALUES (?1, ?1 * 7919 % 100000, ?2)";
            connection.execute(sql, &row).expect("a row");
        }
        connection.execute("COMMIT", &[]).expect("COMMIT");
        connection.checkpoint_truncate().expect("a checkpoint");
    }
    store
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn resident_kib() -> u64 {
    status("VmRSS:")
}

fn peak_kib() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
