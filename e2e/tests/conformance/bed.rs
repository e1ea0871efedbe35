//! A primary that serves a session and a replica that follows it.

use anyhow::Result;
use tidegate_e2e::dump;
use tidegate_e2e::served::Served;
use tidegate_engine::error::Error;
use tidegate_engine::result::ResultSet;
use tidegate_engine::store::DATABASE_FILE;
use tidegate_engine::testing::{self, Replica};

use crate::script::{Expect, Statement};

pub struct Bed {
    primary: Served,
    replica: Replica,
    dir: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        Ok(Self {
            primary: Served::open(&dir.path().join("primary"))?,
            replica: Replica::open(&dir.path().join("replica"))?,
            dir,
        })
    }

    pub fn run(&mut self, sql: &str) -> Result<ResultSet, Error> {
        self.primary.run(sql)
    }

    pub fn is_in_transaction(&self) -> bool {
        self.primary.is_in_transaction()
    }

    /// Runs a statement and says how its outcome differs from what was expected.
    pub fn check(&mut self, statement: &Statement) -> Option<String> {
        let was_open = self.is_in_transaction();
        let outcome = self.run(&statement.sql);
        let ended = was_open && !self.is_in_transaction();
        let fits = match (&outcome, &statement.expect) {
            (Ok(_), Expect::Success) => true,
            (Err(error), Expect::Error(code)) => error.code() == code && !ended,
            (Err(error), Expect::Gone(code)) => error.code() == code && ended,
            (Err(Error::Refused { reason, .. }), Expect::Refused(wanted)) => reason == wanted,
            _ => false,
        };
        (!fits).then(|| complaint(statement, outcome, ended))
    }

    /// Ships what is new and compares the two databases.
    pub fn ship(&mut self) -> Vec<String> {
        if let Err(error) = self.replica.follow(self.primary.store()) {
            return vec![format!("cannot ship: {error}")];
        }
        testing::differences(self.primary.store(), &self.replica.store)
            .unwrap_or_else(|error| vec![format!("cannot compare: {error}")])
    }

    /// Writes that left no log row: must stay zero.
    pub fn uncaptured_writes(&self) -> u64 {
        self.primary.uncaptured_writes()
    }

    /// Stops both and has C SQLite compare the files.
    pub fn compare_with_sqlite(self) -> Result<dump::Comparison> {
        self.primary.stop();
        drop(self.replica);
        let file = |side: &str| self.dir.path().join(side).join(DATABASE_FILE);
        dump::compare(&file("primary"), &file("replica"))
    }
}

fn complaint(statement: &Statement, outcome: Result<ResultSet, Error>, ended: bool) -> String {
    let got = match outcome {
        Ok(_) => "it succeeded".to_owned(),
        Err(error) => format!("{}: {error:?}, ended: {ended}", error.code()),
    };
    let sql: String = statement.sql.chars().take(200).collect();
    let (line, expect) = (statement.line, &statement.expect);
    format!("line {line}: {sql}\n    expected {expect:?}, but {got}")
}
