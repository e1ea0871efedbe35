//! Rows per second of the row digest, over tables of narrow and of wide rows.
//!
//! The bar is 1.5 M narrow rows per second and core. "scan" reads the same rows and hashes
//! nothing: the ceiling that the engine sets.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate_engine::digest::{self, KeyRange, RangeLimits};
use tidegate_engine::store::{Store, Synchronous};
use tidegate_engine::view::ReadView;

const ROWS: u64 = 500_000;
const CACHE_KIB: u32 = 8_000;

const TABLES: [(&str, &str); 2] = [
    (
        "narrow",
        "CREATE TABLE narrow (id INTEGER PRIMARY KEY, k INTEGER NOT NULL, v TEXT)",
    ),
    (
        "wide",
        "CREATE TABLE wide (id INTEGER PRIMARY KEY, k INTEGER NOT NULL, a TEXT, b REAL, c BLOB)",
    ),
];

fn digests(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = filled(dir.path());
    let mut group = criterion.benchmark_group("digest");
    group.throughput(Throughput::Elements(ROWS));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(4));
    for (table, _) in TABLES {
        group.bench_function(BenchmarkId::new("scan", table), |bench| {
            bench.iter(|| scan_only(&store, table));
        });
        group.bench_function(BenchmarkId::new("range", table), |bench| {
            bench.iter(|| whole(&store, table));
        });
        group.bench_function(BenchmarkId::new("walk", table), |bench| {
            bench.iter(|| walk(&store, table));
        });
    }
    group.finish();
}

fn scan_only(store: &Store, table: &str) -> u64 {
    let mut reader = store.reader().expect("a reader");
    let mut view = ReadView::begin(&mut reader, store.gate()).expect("a view");
    let sql = format!("SELECT rowid, * FROM {table} NOT INDEXED");
    let mut rows = 0;
    view.query(&sql, &[], |row| {
        rows += u64::from(black_box(row.len()) > 1);
        Ok(())
    })
    .expect("a scan");
    rows
}

fn whole(store: &Store, table: &str) -> u64 {
    let mut reader = store.reader().expect("a reader");
    let mut view = ReadView::begin(&mut reader, store.gate()).expect("a view");
    let digest = digest::digest_range(&mut view, table, KeyRange::ALL).expect("a digest");
    assert_eq!(digest.rows, ROWS);
    digest.rows
}

fn walk(store: &Store, table: &str) -> u64 {
    let mut reader = store.reader().expect("a reader");
    let (mut after, mut rows) = (None, 0);
    loop {
        let mut view = ReadView::begin(&mut reader, store.gate()).expect("a view");
        let limits = RangeLimits::default();
        let (range, digest) =
            digest::digest_next(&mut view, table, after, ROWS as i64, limits).expect("a range");
        rows += digest.rows;
        after = range.up_to;
        if after == Some(ROWS as i64) {
            assert_eq!(rows, ROWS);
            return rows;
        }
    }
}

fn filled(dir: &std::path::Path) -> Store {
    let store = Store::open_with(dir, Synchronous::Normal, CACHE_KIB).expect("a store");
    let mut connection = store.internal().expect("a connection");
    for (_, create) in TABLES {
        connection.execute(create, &[]).expect("a table");
    }
    connection.execute("BEGIN IMMEDIATE", &[]).expect("BEGIN");
    for i in 0..ROWS as i64 {
        let narrow = "INSERT INTO narrow (k, v) VALUES (?, ?)";
        let text = format!("value {i}");
        let params = [(i * 7).into(), text.as_str().into()];
        connection.execute(narrow, &params).expect("a row");
        let wide = "INSERT INTO wide (k, a, b, c) VALUES (?, ?, ?, ?)";
        let params = [
            (i * 7).into(),
            "some words of an ordinary length ".repeat(4).into(),
            (i as f64 * 0.5).into(),
            vec![7u8; 20].into(),
        ];
        connection.execute(wide, &params).expect("a row");
    }
    connection.execute("COMMIT", &[]).expect("COMMIT");
    connection.checkpoint_truncate().expect("a checkpoint");
    store
}

criterion_group!(benches, digests);
criterion_main!(benches);
