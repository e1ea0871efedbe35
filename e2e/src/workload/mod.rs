//! What clients do under test.
//!
//! Each workload owns its tables, makes its choices from a seed, and notes every operation
//! with its fate in a [`History`]. It judges nothing: that is the business of the checkers in
//! [`crate::checker`], which know the histories and the stored rows and nothing else. A
//! workload that misremembers can therefore not excuse a node that loses.
//!
//! Rows of a workload are owned by one worker where a sequence of changes matters. After an
//! operation of unknown fate its owner leaves the rows alone for good, so that a request that
//! arrives late can still be told from one that was lost.

pub mod bank;
pub mod blobs;
pub mod churn;
pub mod register;
pub mod schema;
pub mod set;
pub mod wide;

use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{Fleet, Worker};
use crate::history::History;

/// The histories of all workloads.
pub struct Ledgers {
    /// Transfers between accounts.
    pub bank: History<bank::Transfer>,
    /// Unique keys that were inserted.
    pub set: History<set::Insert>,
    /// Values written to registers.
    pub register: History<register::Write>,
    /// Changes to rows with a unique name.
    pub churn: History<churn::Change>,
    /// Steps in the lives of tables.
    pub schema: History<schema::Step>,
    /// Large values.
    pub blobs: History<blobs::Change>,
    /// Transactions of many rows.
    pub wide: History<wide::Change>,
}

/// How often each workload takes a turn, out of their sum.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Transfers.
    pub bank: u64,
    /// Inserts of unique keys.
    pub set: u64,
    /// Register writes.
    pub register: u64,
    /// Unique-name churn.
    pub churn: u64,
    /// Schema changes.
    pub schema: u64,
    /// Blobs.
    pub blobs: u64,
    /// Wide transactions.
    pub wide: u64,
    /// Reads.
    pub reads: u64,
}

/// All workloads of one worker.
pub struct Mixed {
    mix: Mix,
    ledgers: Arc<Ledgers>,
    churn: churn::Owned,
    schema: schema::Owned,
    blobs: blobs::Owned,
    wide: wide::Owned,
}

impl Ledgers {
    /// Empty histories.
    pub fn new(epoch: Instant) -> Arc<Self> {
        Arc::new(Self {
            bank: History::new(epoch),
            set: History::new(epoch),
            register: History::new(epoch),
            churn: History::new(epoch),
            schema: History::new(epoch),
            blobs: History::new(epoch),
            wide: History::new(epoch),
        })
    }
}

impl Default for Mix {
    fn default() -> Self {
        Self {
            bank: 24,
            set: 25,
            register: 12,
            churn: 20,
            schema: 2,
            blobs: 3,
            wide: 1,
            reads: 13,
        }
    }
}

/// The statements that make all tables and their first rows.
pub fn setup() -> Vec<String> {
    let parts: [fn() -> Vec<String>; 6] = [
        bank::setup,
        set::setup,
        register::setup,
        churn::setup,
        blobs::setup,
        wide::setup,
    ];
    parts.iter().flat_map(|part| part()).collect()
}

/// Runs `workers` workers until `statements` were sent or the fleet is stopped.
pub async fn run(fleet: &Arc<Fleet>, ledgers: &Arc<Ledgers>, plan: Plan) {
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..plan.workers {
        let mut worker = Worker::new(fleet.clone(), id, plan.seed);
        let mut mixed = Mixed::new(ledgers.clone(), plan.mix);
        let fleet = fleet.clone();
        tasks.spawn(async move {
            while !fleet.is_stopping() && fleet.statements() < plan.statements {
                mixed.step(&mut worker).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("a worker does not panic");
    }
}

/// How much work, by how many.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Workers at the same time.
    pub workers: usize,
    /// Statements in all.
    pub statements: u64,
    /// What the choices are made from.
    pub seed: u64,
    /// Shares of the workloads.
    pub mix: Mix,
}

impl Mixed {
    /// The workloads of one worker.
    pub fn new(ledgers: Arc<Ledgers>, mix: Mix) -> Self {
        Self {
            mix,
            ledgers,
            churn: churn::Owned::default(),
            schema: schema::Owned::default(),
            blobs: blobs::Owned::default(),
            wide: wide::Owned::default(),
        }
    }

    /// One operation.
    pub async fn step(&mut self, worker: &mut Worker) {
        if worker.only_reads() {
            return read(worker).await;
        }
        let mix = self.mix;
        let shares = [
            mix.bank,
            mix.set,
            mix.register,
            mix.churn,
            mix.schema,
            mix.blobs,
            mix.wide,
            mix.reads,
        ];
        let mut draw = worker.rng.below(shares.iter().sum());
        let mut chosen = 0;
        while draw >= shares[chosen] {
            draw -= shares[chosen];
            chosen += 1;
        }
        match chosen {
            0 => bank::step(worker, &self.ledgers.bank).await,
            1 => set::step(worker, &self.ledgers.set).await,
            2 => register::step(worker, &self.ledgers.register).await,
            3 => self.churn.step(worker, &self.ledgers.churn).await,
            4 => self.schema.step(worker, &self.ledgers.schema).await,
            5 => self.blobs.step(worker, &self.ledgers.blobs).await,
            6 => self.wide.step(worker, &self.ledgers.wide).await,
            _ => read(worker).await,
        }
    }
}

async fn read(worker: &mut Worker) {
    let reads = [
        "SELECT balance FROM bank_accounts WHERE id = 3",
        "SELECT count(*), max(id) FROM set_items WHERE id > (SELECT max(id) FROM set_items) - 50",
        "SELECT id, name FROM churn ORDER BY name LIMIT 10",
        "SELECT length(body), size FROM blobs ORDER BY id DESC LIMIT 1",
        "SELECT sum(value), sum(writes) FROM registers",
    ];
    let sql = *worker.rng.choose(&reads).expect("there are reads");
    worker.read(sql, &[]).await;
}
