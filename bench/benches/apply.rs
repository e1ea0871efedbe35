//! Rows per second of the tail and of apply, and what the choices in apply cost.
//!
//! "put" lanes are bare statements on an applying connection, in one transaction: the ceiling
//! that the engine sets, and on it the ways to store the touched keys and to replace rows.
//! "apply" is the production function with everything it checks.

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate_engine::adapter::Connection;
use tidegate_engine::change::Touched;
use tidegate_engine::testing::Pair;
use tidegate_engine::{Value, codec};

const ROWS: i64 = 20_000;
const TABLE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER NOT NULL, v TEXT)";
const INSERT: &str = "INSERT INTO t(id, k, v) VALUES (?, ?, ?)";
const REPLACE: &str = "INSERT OR REPLACE INTO t(id, k, v) VALUES (?, ?, ?)";
const DELETE: &str = "DELETE FROM t WHERE id = ?";
const LOG_ROW: &str = "INSERT INTO turso_cdc(change_id, change_time, change_txn_id, change_type, \
                       table_name, id) VALUES (?, 0, 0, 0, 't', ?)";
const LOG_PACKED: &str = "INSERT INTO _tidegate_keys(to_seq, from_seq, keys) VALUES (?, 0, ?)";

/// Positions that the lanes below invent; far above those of the pair itself.
struct Lanes {
    connection: Connection,
    next_seq: i64,
    _dir: tempfile::TempDir,
    _pair: Pair,
}

impl Lanes {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let pair = Pair::new(dir.path()).expect("a pair");
        let mut connection = pair.replica.store.applying().expect("a connection");
        connection.execute(TABLE, &[]).expect("a table");
        Self {
            connection,
            next_seq: 1 << 40,
            _dir: dir,
            _pair: pair,
        }
    }

    fn run(&mut self, sql: &str, params: &[Value]) {
        self.connection.execute(sql, params).expect("a statement");
    }

    fn row(id: i64) -> [Value; 3] {
        let text = format!("row {id}, padded to the length of something real: {id:0100}");
        [id.into(), (id * 7).into(), text.into()]
    }

    fn fill(&mut self, sql: &str) {
        for id in 0..ROWS {
            self.run(sql, &Self::row(id));
        }
    }

    fn log_rows(&mut self) {
        for id in 0..ROWS {
            self.next_seq += 1;
            self.run(LOG_ROW, &[self.next_seq.into(), id.into()]);
        }
    }

    fn log_packed(&mut self) {
        let touched = Touched::from([("t".to_owned(), (0..ROWS).collect())]);
        self.next_seq += ROWS;
        let keys = codec::encode_keys(&touched);
        self.run(LOG_PACKED, &[self.next_seq.into(), keys.into()]);
    }

    /// Time of `work` in one transaction; the table is emptied, or filled, before.
    fn timed(&mut self, filled: bool, work: impl FnOnce(&mut Self)) -> Duration {
        self.run("DELETE FROM t", &[]);
        if filled {
            self.run("BEGIN IMMEDIATE", &[]);
            self.fill(INSERT);
            self.run("COMMIT", &[]);
        }
        self.connection.checkpoint_truncate().expect("a checkpoint");
        let start = Instant::now();
        self.run("BEGIN IMMEDIATE", &[]);
        work(self);
        self.run("COMMIT", &[]);
        start.elapsed()
    }
}

fn puts(criterion: &mut Criterion) {
    let mut lanes = Lanes::new();
    let mut group = criterion.benchmark_group("put");
    group.throughput(Throughput::Elements(ROWS.unsigned_abs()));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    let mut lane = |name: &str, filled: bool, work: fn(&mut Lanes)| {
        group.bench_function(name, |bench| {
            bench.iter_custom(|times| (0..times).map(|_| lanes.timed(filled, work)).sum());
        });
    };
    lane("insert", false, |lanes| lanes.fill(INSERT));
    lane("insert, keys packed", false, |lanes| {
        lanes.fill(INSERT);
        lanes.log_packed();
    });
    lane("insert, a log row for each key", false, |lanes| {
        lanes.fill(INSERT);
        lanes.log_rows();
    });
    lane("delete all, then insert", true, |lanes| {
        for id in 0..ROWS {
            lanes.run(DELETE, &[id.into()]);
        }
        lanes.fill(INSERT);
    });
    lane("insert or replace", true, |lanes| lanes.fill(REPLACE));
    group.finish();
}

fn tail_and_apply(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut pair = Pair::new(dir.path()).expect("a pair");
    pair.run(TABLE).expect("a table");
    pair.ship().expect("a batch");
    let mut group = criterion.benchmark_group("batch");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    let changes: [(&str, &[&str], i64); 3] = [
        ("load", &["DELETE FROM t", "load"], ROWS),
        ("update all", &["UPDATE t SET k = k + 1"], ROWS),
        (
            "update every 13th",
            &["UPDATE t SET k = k + 1 WHERE id % 13 = 0"],
            ROWS / 13,
        ),
    ];
    for (name, statements, rows) in changes {
        group.throughput(Throughput::Elements(rows.unsigned_abs()));
        for (what, pick) in [("tail", 0), ("apply", 1)] {
            group.bench_function(format!("{what}, {name}"), |bench| {
                bench.iter_custom(|times| {
                    let round = |_| change_and_ship(&mut pair, statements)[pick];
                    (0..times).map(round).sum()
                });
            });
        }
    }
    group.finish();
}

fn change_and_ship(pair: &mut Pair, statements: &[&str]) -> [Duration; 2] {
    for statement in statements {
        match *statement {
            "load" => load(pair),
            sql => drop(pair.run(sql).expect("a statement")),
        }
        if *statement == "DELETE FROM t" {
            pair.ship().expect("a batch");
        }
    }
    let start = Instant::now();
    let fetched = pair.replica.fetch(&pair.primary.store);
    let mut batch = fetched.expect("a batch").expect("something new");
    let fetched = start.elapsed();
    let applied = pair.replica.applier.apply(&mut batch.spool);
    applied.expect("it is applied");
    [fetched, start.elapsed() - fetched]
}

fn load(pair: &mut Pair) {
    let rows = |primary: &mut tidegate_engine::testing::Primary| {
        for id in 0..ROWS {
            primary.execute(INSERT, &Lanes::row(id))?;
        }
        Ok(())
    };
    pair.primary.transaction(rows).expect("a transaction");
}

criterion_group!(benches, puts, tail_and_apply);
criterion_main!(benches);
