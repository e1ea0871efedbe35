//! The life of one interactive transaction on its thread.
//!
//! The thread waits for the session's next statement no longer than the limits allow, runs it
//! (see `transaction`), and answers. Whatever else ends the wait rolls back at once: a limit,
//! a session that is gone, a checkpoint that must not wait any longer, the node's shutdown.
//! A transaction that ended on its own accord leaves word, so that the session's next
//! statement is told why and does not run outside by mistake.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::statement::Reply;
use crate::stats::Family;
use crate::transaction::Transaction;
use crate::transactions::{RunStep, Start, Step, StepReply};

/// Serves a transaction until it has ended, and gives the connection back.
pub(crate) fn serve(shared: &Arc<Shared>, connection: Connection, start: &Start) -> Connection {
    let mut life = Life {
        shared,
        start,
        began: Instant::now(),
        transaction: Transaction::new(shared, connection, start.id, start.foreign_keys),
    };
    while life.serve_one() {}
    life.transaction.into_connection()
}

struct Life<'a> {
    shared: &'a Arc<Shared>,
    start: &'a Start,
    began: Instant,
    transaction: Transaction<'a>,
}

impl Life<'_> {
    /// Waits for one step and serves it. False when the transaction has ended.
    fn serve_one(&mut self) -> bool {
        let limit = self.idle_limit().min(self.time_left());
        match self.start.steps.recv_timeout(limit) {
            Ok(Step::Run(step)) => self.answer(step),
            Ok(Step::Describe { sql, respond }) => {
                respond.send(self.transaction.describe(&sql)).ok();
                true
            }
            // The permit was taken since: no snapshot stands in the way any more.
            Ok(Step::Evict) if self.transaction.is_writing() => true,
            Ok(Step::Evict) => {
                let message = "its snapshot kept the write-ahead log from being emptied";
                self.give_up(self.ended("checkpoint", message))
            }
            Ok(Step::Close) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                self.give_up(Error::Closed)
            }
            Err(mpsc::RecvTimeoutError::Timeout) => self.give_up(self.timed_out()),
        }
    }

    /// Runs a statement and answers it. False when the transaction has ended.
    fn answer(&mut self, step: RunStep) -> bool {
        let transactions = &self.shared.transactions;
        transactions.set_running(self.start.id, Some(step.cancel.clone()));
        let mut outcome = self.transaction.run(&step, self.time_left());
        transactions.set_running(self.start.id, None);
        if self.transaction.is_open() && self.time_left().is_zero() {
            outcome = self.overran();
        }
        let open = self.transaction.is_open();
        if !open {
            // The permit is back, and the register right, before the client hears of it.
            self.transaction.let_go();
            transactions.forget(self.start.id);
        }
        step.respond.send(StepReply { outcome, open }).ok();
        open
    }

    /// Out of time in the middle of a statement.
    fn overran(&mut self) -> Result<Reply> {
        let error = self.timed_out();
        self.transaction.roll_back();
        Err(error)
    }

    /// Rolls back without having been asked to, and leaves word why.
    fn give_up(&mut self, why: Error) -> bool {
        self.transaction.roll_back();
        self.transaction.let_go();
        self.start.note_end(why);
        false
    }

    fn time_left(&self) -> std::time::Duration {
        let all = self.shared.options.transaction_time_max;
        all.saturating_sub(self.began.elapsed())
    }

    fn idle_limit(&self) -> std::time::Duration {
        if self.transaction.is_writing() {
            self.shared.options.transaction_permit_idle_max
        } else {
            self.shared.options.transaction_idle_max
        }
    }

    fn timed_out(&self) -> Error {
        let options = &self.shared.options;
        if self.time_left().is_zero() {
            let limit = options.transaction_time_max;
            self.ended("total", &format!("it was open for longer than {limit:?}"))
        } else if self.transaction.is_writing() {
            let limit = options.transaction_permit_idle_max;
            let message = format!("it was idle for {limit:?} while holding up all other writers");
            self.ended("permit_idle", &message)
        } else {
            let limit = options.transaction_idle_max;
            self.ended("idle", &format!("it was idle for longer than {limit:?}"))
        }
    }

    fn ended(&self, word: &'static str, message: &str) -> Error {
        self.shared.counters.count(Family::TransactionEnded, word);
        Error::TransactionTimeout(message.to_owned())
    }
}
