//! A mixed load on a real schema: what many applications at once do to the Chinook database.
//!
//! A [`Plan`] is made from a seed and says what each client does, one operation after the
//! other. It does not depend on answers, so that the published JavaScript client, `curl` and
//! the client of these tests can all be its drivers ([`drive`]), and a seed repeats it; only
//! how the clients interleave is left to the machine.
//!
//! Operations that keep something add a row to the table `Ledger` in the same transaction.
//! What was acknowledged must be there at the end, what failed or was rolled back must not
//! ([`Results::check_ledger`]).

mod driver;
mod statements;

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::history::{Fate, Tally};
use crate::rng::Rng;
use crate::stream::Statement;

pub use driver::{Driver, drive};
pub use statements::setup;

/// Unexpected ends that are described.
const ODD_NAMED_MAX: usize = 12;

/// What all clients do.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// One entry for each client.
    pub clients: Vec<ClientPlan>,
}

/// What one client does.
#[derive(Debug, Serialize)]
pub struct ClientPlan {
    /// How it speaks to the node.
    pub via: Via,
    /// Its operations, in order.
    pub ops: Vec<Op>,
}

/// How a client speaks to the node. The client of these tests plays all of them when there is
/// no Node.js.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// `@libsql/client` over HTTP.
    Http,
    /// `@libsql/client` over WebSocket.
    Ws,
    /// A `curl` process for each request.
    Curl,
}

/// One operation: a statement, or a transaction.
#[derive(Debug, Clone, Serialize)]
pub struct Op {
    /// Its number in the plan; its row in the ledger, if it adds one.
    pub id: i64,
    /// How it is sent.
    pub way: Way,
    /// Text and arguments, in the protocol's form.
    pub statements: Vec<Statement>,
    /// How it ends when nothing disturbs it.
    #[serde(skip)]
    pub expected: Expected,
    /// Whether it has a statement for the ledger.
    #[serde(skip)]
    pub in_ledger: bool,
}

/// How an operation is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// One statement in autocommit.
    Single,
    /// One transaction in one request.
    Batch,
    /// A transaction, statement by statement, that commits.
    Commit,
    /// A transaction, statement by statement, that is rolled back.
    Rollback,
}

/// How an operation ends when nothing disturbs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// With success.
    Success,
    /// With an error of this code.
    Error(&'static str),
    /// Depends on what other clients did before.
    Either(&'static str),
}

/// What became of one operation, as its client knows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Answer {
    /// The operation.
    pub id: i64,
    /// Its fate.
    pub fate: Fate,
    /// Code and message when it was not acknowledged.
    #[serde(default)]
    pub code: String,
    /// See `code`.
    #[serde(default)]
    pub message: String,
}

/// A plan that was carried out.
#[derive(Debug)]
pub struct Results {
    answers: BTreeMap<i64, (Op, Answer)>,
}

impl Plan {
    /// What `clients` clients do who together send at least `statements` statements, and few
    /// more. One client in eight is `curl`, one in eight speaks WebSocket.
    pub fn new(seed: u64, clients: usize, statements: usize) -> Self {
        let mut ids = 1..;
        let share = statements.div_ceil(clients.max(1));
        let clients = (0..clients).map(|client| {
            let mut rng = Rng::new(seed ^ (client as u64) << 32);
            let mut ops = Vec::new();
            let mut left = share;
            while left > 0 {
                let id = ids.next().expect("ids do not end");
                let op = statements::draw(&mut rng, id, client);
                left = left.saturating_sub(op.statements.len());
                ops.push(op);
            }
            let via = match client % 8 {
                3 => Via::Curl,
                5 => Via::Ws,
                _ => Via::Http,
            };
            ClientPlan { via, ops }
        });
        Self {
            clients: clients.collect(),
        }
    }

    /// Statements in it, without BEGIN, COMMIT and ROLLBACK.
    pub fn statements(&self) -> usize {
        self.ops().map(|op| op.statements.len()).sum()
    }

    fn ops(&self) -> impl Iterator<Item = &Op> {
        self.clients.iter().flat_map(|client| &client.ops)
    }
}

impl Results {
    fn new(plan: &Plan, answers: Vec<Answer>) -> Result<Self> {
        let mut answers: BTreeMap<_, _> = answers.into_iter().map(|a| (a.id, a)).collect();
        let mut results = BTreeMap::new();
        for op in plan.ops() {
            let answer = answers.remove(&op.id);
            let answer = answer.ok_or_else(|| anyhow::anyhow!("no answer for {op:?}"))?;
            results.insert(op.id, (op.clone(), answer));
        }
        ensure!(answers.is_empty(), "answers to nothing: {answers:?}");
        Ok(Self { answers: results })
    }

    /// How many operations had which fate.
    pub fn operations(&self) -> Tally {
        let mut tally = Tally::default();
        for (_, answer) in self.answers.values() {
            tally.count(answer.fate);
        }
        tally
    }

    /// How many statements were in operations of which fate.
    pub fn statements(&self) -> Tally {
        let mut tally = Tally::default();
        for (op, answer) in self.answers.values() {
            for _ in &op.statements {
                tally.count(answer.fate);
            }
        }
        tally
    }

    /// Operations that were not acknowledged, by the code of their error.
    pub fn by_code(&self) -> BTreeMap<&str, u64> {
        let mut codes = BTreeMap::new();
        for (_, answer) in self.answers.values() {
            if answer.fate != Fate::Acknowledged {
                *codes.entry(answer.code.as_str()).or_default() += 1;
            }
        }
        codes
    }

    /// Fails when an operation ended otherwise than it does on an undisturbed node.
    pub fn check_undisturbed(&self) -> Result<()> {
        let odd: Vec<_> = (self.answers.values())
            .filter(|(op, answer)| !op.expected.allows(answer))
            .map(|(op, answer)| (op.expected, answer, &op.statements[0].0))
            .take(ODD_NAMED_MAX)
            .collect();
        ensure!(odd.is_empty(), "unexpected ends: {odd:#?}");
        Ok(())
    }

    /// Fails when the ledger of a stopped node lacks what was acknowledged, or has what
    /// failed or was rolled back.
    pub fn check_ledger(&self, ledger: &[i64]) -> Result<()> {
        let missing = |op: &Op, answer: &Answer| {
            answer.fate == Fate::Acknowledged && op.keeps() && ledger.binary_search(&op.id).is_err()
        };
        let extra = |op: &Op, answer: &Answer| {
            (answer.fate == Fate::Failed || !op.keeps()) && ledger.binary_search(&op.id).is_ok()
        };
        for (op, answer) in self.answers.values() {
            ensure!(!missing(op, answer), "acknowledged but not there: {op:?}");
            ensure!(!extra(op, answer), "there, though {answer:?}: {op:?}");
        }
        Ok(())
    }
}

impl Op {
    /// Whether its row must be in the ledger once it was acknowledged.
    fn keeps(&self) -> bool {
        self.in_ledger && self.way != Way::Rollback
    }
}

impl Expected {
    fn allows(self, answer: &Answer) -> bool {
        let acknowledged = answer.fate == Fate::Acknowledged;
        let failed_by = |code| answer.fate == Fate::Failed && answer.code == code;
        match self {
            Self::Success => acknowledged,
            Self::Error(code) => failed_by(code),
            Self::Either(code) => acknowledged || failed_by(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_plan_again() {
        let json = |seed| serde_json::to_string(&Plan::new(seed, 16, 400)).unwrap();
        assert_eq!(json(7), json(7));
        assert_ne!(json(7), json(8));
    }

    #[test]
    fn a_plan_has_all_its_statements_and_every_way_to_send_them() {
        let plan = Plan::new(1, 16, 4_000);
        assert!((4_000..4_100).contains(&plan.statements()));
        for way in [Way::Single, Way::Batch, Way::Commit, Way::Rollback] {
            assert!(plan.ops().any(|op| op.way == way), "{way:?}");
        }
        for via in [Via::Http, Via::Ws, Via::Curl] {
            assert!(plan.clients.iter().any(|c| c.via == via), "{via:?}");
        }
    }

    #[test]
    fn the_ledger_is_held_against_every_fate() {
        let plan = Plan::new(1, 1, 300);
        let kept: Vec<i64> = plan.ops().filter(|op| op.keeps()).map(|op| op.id).collect();
        let answered = |fate| {
            let answer = |op: &Op| Answer {
                id: op.id,
                fate,
                code: String::new(),
                message: String::new(),
            };
            Results::new(&plan, plan.ops().map(answer).collect()).unwrap()
        };
        answered(Fate::Acknowledged).check_ledger(&kept).unwrap();
        answered(Fate::Acknowledged)
            .check_ledger(&kept[1..])
            .unwrap_err();
        answered(Fate::Failed).check_ledger(&[]).unwrap();
        answered(Fate::Failed).check_ledger(&kept[..1]).unwrap_err();
        answered(Fate::Indeterminate)
            .check_ledger(&kept[1..])
            .unwrap();
    }
}
