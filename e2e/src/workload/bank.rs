//! Accounts whose sum never changes.
//!
//! A transfer takes from one account, gives to another and leaves a row of its own; a trigger
//! counts those rows. In every committed state the sum is what it was at first and the counter
//! is the number of rows. A replica on which the trigger fired a second time, a transaction
//! applied in half, or one applied twice, breaks it.

use std::time::Instant;

use crate::client::integer;
use crate::fleet::Worker;
use crate::history::{Fate, History};
use crate::stream::Statement;

/// Number of accounts.
pub const ACCOUNTS: i64 = 64;
/// What each account holds at first.
pub const BALANCE: i64 = 1_000;
/// Largest transfer. More than a balance now and then, so that some are refused by a CHECK.
const AMOUNT_MAX: i64 = 200;

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Its number: key of the row it leaves.
    pub id: i64,
    /// Account it takes from.
    pub source: i64,
    /// Account it gives to.
    pub target: i64,
    /// How much.
    pub amount: i64,
}

/// Tables and first rows.
pub fn setup() -> Vec<String> {
    vec![
        "CREATE TABLE bank_accounts (id INTEGER PRIMARY KEY, \
         balance INTEGER NOT NULL CHECK (balance >= 0))"
            .to_owned(),
        "CREATE TABLE bank_transfers (id INTEGER PRIMARY KEY, \
         source INTEGER NOT NULL REFERENCES bank_accounts(id), \
         target INTEGER NOT NULL REFERENCES bank_accounts(id), amount INTEGER NOT NULL)"
            .to_owned(),
        "CREATE TABLE bank_counter (id INTEGER PRIMARY KEY, transfers INTEGER NOT NULL)".to_owned(),
        "CREATE TRIGGER bank_count AFTER INSERT ON bank_transfers BEGIN \
         UPDATE bank_counter SET transfers = transfers + 1 WHERE id = 1; END"
            .to_owned(),
        "INSERT INTO bank_counter (id, transfers) VALUES (1, 0)".to_owned(),
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {}) \
             INSERT INTO bank_accounts (id, balance) SELECT i, {BALANCE} FROM n",
            ACCOUNTS - 1
        ),
    ]
}

/// One transfer, in one of the forms that clients use; some are abandoned on purpose.
pub async fn step(worker: &mut Worker, history: &History<Transfer>) {
    let source = worker.rng.integer_below(ACCOUNTS);
    let transfer = Transfer {
        id: worker.fresh_id(),
        source,
        target: (source + 1 + worker.rng.integer_below(ACCOUNTS - 1)) % ACCOUNTS,
        amount: 1 + worker.rng.integer_below(AMOUNT_MAX),
    };
    let statements = statements(&transfer);
    let started = Instant::now();
    let outcome = match worker.rng.below(10) {
        0..6 => worker.transaction(&statements).await,
        6..9 => worker.interactive(&statements, false).await,
        _ => worker.interactive(&statements, true).await,
    };
    history.note(transfer, Fate::from(&outcome), started);
}

fn statements(transfer: &Transfer) -> Vec<Statement> {
    let Transfer {
        id,
        source,
        target,
        amount,
    } = *transfer;
    vec![
        (
            "UPDATE bank_accounts SET balance = balance - ? WHERE id = ?".to_owned(),
            vec![integer(amount), integer(source)],
        ),
        (
            "UPDATE bank_accounts SET balance = balance + ? WHERE id = ?".to_owned(),
            vec![integer(amount), integer(target)],
        ),
        (
            "INSERT INTO bank_transfers (id, source, target, amount) VALUES (?, ?, ?, ?)"
                .to_owned(),
            vec![
                integer(id),
                integer(source),
                integer(target),
                integer(amount),
            ],
        ),
    ]
}
