//! One round of the property test.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tidegate_e2e::served::Served;
use tidegate_engine::error::Error;
use tidegate_engine::result::ResultSet;
use tidegate_engine::testing::{Replica, differences};
use tidegate_engine::{Store, Value};

use crate::generator::{Column, Generator, Schema, Table};
use crate::oracle::{Oracle, Tally};

/// Statements before the promotion.
const STATEMENTS: usize = 160;
/// Statements after it.
const STATEMENTS_PROMOTED: usize = 30;

/// Runs the round of a seed. An error says what differed, after the statements that ran.
pub fn run(seed: u64) -> Result<Tally> {
    let dir = tempfile::tempdir()?;
    let mut round = Round::new(seed, dir.path())?;
    match round.play(dir.path()) {
        Ok(()) => Ok(round.oracle.tally),
        Err(error) => bail!("{}\nseed {seed}: {error:#}", round.told.join("\n")),
    }
}

struct Round {
    generator: Generator,
    primary: Option<Served>,
    replica: Option<Replica>,
    second: Replica,
    oracle: Oracle,
    schema: Schema,
    /// Compares with the oracle after each statement, to find the one that differed.
    asks_always: bool,
    /// What ran and what came of it, for the reader of a failure.
    told: Vec<String>,
}

impl Round {
    fn new(seed: u64, dir: &Path) -> Result<Self> {
        Ok(Self {
            generator: Generator::new(seed),
            primary: Some(Served::open(&dir.join("primary"))?),
            replica: Some(Replica::open(&dir.join("replica"))?),
            second: Replica::open(&dir.join("second"))?,
            oracle: Oracle::new()?,
            schema: Schema::default(),
            asks_always: std::env::var_os("PROPERTY_SEED").is_some(),
            told: Vec::new(),
        })
    }

    fn play(&mut self, dir: &Path) -> Result<()> {
        for sql in self.generator.beginning() {
            self.step(&sql, dir)?;
        }
        for _ in 0..STATEMENTS {
            let is_open = self.primary().is_in_transaction();
            let sql = self.generator.statement(&self.schema, is_open);
            self.step(&sql, dir)?;
            self.follow_by_chance()?;
        }
        if self.primary().is_in_transaction() {
            self.step("COMMIT", dir)?;
        }
        if self.primary().is_in_transaction() {
            self.step("ROLLBACK", dir)?;
        }
        self.compare_all(dir)?;
        self.promote(dir)
    }

    fn step(&mut self, sql: &str, dir: &Path) -> Result<()> {
        let outcome = self.primary().run(sql);
        let is_open = self.primary().is_in_transaction();
        self.told.push(match &outcome {
            Ok(result) => format!("{sql};  -- {} changed", result.changes),
            Err(error) => format!("{sql};  -- {error:?}"),
        });
        if let Err(error @ (Error::Fatal(_) | Error::Corrupt(_) | Error::Overloaded(_))) = &outcome
        {
            bail!("the primary: {error}");
        }
        self.oracle.run(sql, &outcome, is_open);
        if may_change_schema(sql, &outcome) {
            self.schema = read_schema(&mut |sql| Ok(self.primary_rows(sql)?))?;
        }
        if self.oracle.is_lost() && !is_open {
            self.told.push("-- the oracle begins anew".to_owned());
            let primary = self.primary.as_ref().context("the primary serves")?;
            self.oracle.begin_anew(primary.store(), dir)?;
        }
        if self.generator.percent(15) || self.asks_always {
            self.ask_oracle()?;
        }
        Ok(())
    }

    fn ask_oracle(&mut self) -> Result<()> {
        let primary = self.primary.as_mut().context("the primary serves")?;
        let found = self
            .oracle
            .differences(&mut |sql| Ok(primary.run(sql)?.rows))?;
        if !found.is_empty() && self.asks_always {
            let last = self.told.last().cloned().unwrap_or_default();
            println!("{last}\n{}", found.join("\n"));
        }
        Ok(())
    }

    /// Batches are cut wherever the head happens to be, also while a transaction is open.
    fn follow_by_chance(&mut self) -> Result<()> {
        let primary = self.primary.as_ref().context("the primary serves")?;
        let replica = self.replica.as_mut().context("not yet promoted")?;
        if self.generator.percent(18) {
            self.told.push("-- the replica follows".to_owned());
            replica.follow(primary.store()).context("replica")?;
        }
        if self.generator.percent(9) {
            self.told
                .push("-- the second follows the replica".to_owned());
            self.second.follow(&replica.store).context("second")?;
        }
        Ok(())
    }

    /// Everybody catches up; two more join from position 0.
    fn compare_all(&mut self, dir: &Path) -> Result<()> {
        let primary = self.primary.as_ref().context("the primary serves")?;
        let replica = self.replica.as_mut().context("not yet promoted")?;
        replica.follow(primary.store()).context("replica")?;
        self.second.follow(&replica.store).context("second")?;
        let mut late = Replica::open(&dir.join("late"))?;
        late.follow(primary.store()).context("late")?;
        let mut later = Replica::open(&dir.join("later"))?;
        later.follow(&replica.store).context("later")?;
        for (name, store) in [
            ("replica", &replica.store),
            ("second", &self.second.store),
            ("late, from the primary", &late.store),
            ("late, from the replica", &later.store),
        ] {
            must_be_equal(name, primary.store(), store)?;
        }
        if primary.uncaptured_writes() > 0 {
            bail!("{} writes were not captured", primary.uncaptured_writes());
        }
        self.ask_oracle()
    }

    /// The replica becomes the primary, and the second goes on with it.
    fn promote(&mut self, dir: &Path) -> Result<()> {
        if let Some(primary) = self.primary.take() {
            primary.stop();
        }
        drop(self.replica.take());
        self.told.push("-- the replica is promoted".to_owned());
        let mut promoted = Served::promote(&dir.join("replica"))?;
        for _ in 0..STATEMENTS_PROMOTED {
            let is_open = promoted.is_in_transaction();
            let sql = self.generator.statement(&self.schema, is_open);
            let outcome = promoted.run(&sql);
            let changed = may_change_schema(&sql, &outcome);
            self.told
                .push(format!("{sql};  -- {:?}", outcome.map(|r| r.changes)));
            if changed {
                self.schema = read_schema(&mut |sql| Ok(promoted.run(sql)?.rows))?;
            }
            if self.generator.percent(20) {
                self.second.follow(promoted.store()).context("second")?;
            }
        }
        if promoted.is_in_transaction() && promoted.run("COMMIT").is_err() {
            promoted.run("ROLLBACK")?;
        }
        self.second.follow(promoted.store()).context("second")?;
        must_be_equal("after the promotion", promoted.store(), &self.second.store)?;
        promoted.stop();
        Ok(())
    }

    fn primary(&mut self) -> &mut Served {
        self.primary.as_mut().expect("the primary serves")
    }

    fn primary_rows(&mut self, sql: &str) -> Result<Vec<Vec<Value>>, Error> {
        self.primary().run(sql).map(|result| result.rows)
    }
}

fn must_be_equal(name: &str, a: &Store, b: &Store) -> Result<()> {
    let found = differences(a, b)?;
    if found.is_empty() {
        return Ok(());
    }
    bail!("{name}:\n{}", found.join("\n"))
}

fn may_change_schema(sql: &str, outcome: &Result<ResultSet, Error>) -> bool {
    let first = sql.split(' ').next().unwrap_or_default();
    match outcome {
        Ok(_) => ["CREATE", "DROP", "ALTER", "ROLLBACK"].contains(&first),
        Err(error) => matches!(error, Error::TransactionGone { .. } | Error::Panicked(_)),
    }
}

fn read_schema(rows: &mut dyn FnMut(&str) -> Result<Vec<Vec<Value>>>) -> Result<Schema> {
    let mut schema = Schema::default();
    for row in rows("SELECT type, name FROM sqlite_schema ORDER BY name")? {
        let (Some(kind), Some(name)) = (row[0].as_text(), row[1].as_text()) else {
            continue;
        };
        if !tidegate_engine::names::is_user(name) {
            continue;
        }
        let name = name.to_owned();
        match kind {
            "table" => schema.tables.push(Table {
                columns: read_columns(rows, &name)?,
                name,
            }),
            "index" => schema.indexes.push(name),
            "trigger" => schema.triggers.push(name),
            _ => schema.views.push(name),
        }
    }
    Ok(schema)
}

fn read_columns(
    rows: &mut dyn FnMut(&str) -> Result<Vec<Vec<Value>>>,
    table: &str,
) -> Result<Vec<Column>> {
    let sql = format!(
        "PRAGMA table_info({})",
        tidegate_engine::names::quote(table)
    );
    Ok(rows(&sql)?
        .iter()
        .map(|row| Column {
            name: row[1].as_text().unwrap_or_default().to_owned(),
            decltype: row[2].as_text().unwrap_or_default().to_owned(),
            in_key: row[5] != Value::Integer(0),
        })
        .collect())
}
