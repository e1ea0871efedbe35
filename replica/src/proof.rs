//! A follower's proof that its rows equal its source's.
//!
//! The follower believes a pass only if it saw all of it: the schema and the final values
//! equal at the beginning and at the end, and for every table that it has itself at the end,
//! ranges compared from the lowest to the highest rowid without a hole. Everything else that
//! goes wrong (an error, silence, a stream that ends, a number left out) makes the pass
//! **inconclusive**, and inconclusive is not a proof.
//!
//! Why that proves equality at every later common position: each row is in exactly one
//! range, at that range's position both sides were equal, and from there on both follow the
//! same log. It assumes that capture and apply are right, so a proof has a maximum age.
//!
//! A proof lives in memory. It is void when the process starts, after a snapshot, a repair or
//! an error of the engine. It survives that the primary restarts, and that another node is
//! promoted, if that node held a proof itself. **Diverged** is sticky: a later equal pass does
//! not lift it; a snapshot or a repair does, followed by a new pass.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_engine::Seq;
use tidegate_engine::digest::KeyRange;

use crate::check::{Difference, Outcome, RowDifference, UnequalRange};
use crate::coverage::Coverage;
use crate::error::{Error, Result};

/// Ranges and rows that a verdict names, each.
const NAMED_MAX: usize = 64;

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Everything was compared and equal.
    Equal,
    /// Something was compared and differed.
    Diverged,
    /// Not everything was compared.
    Inconclusive,
}

impl Verdict {
    /// The one word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Diverged => "diverged",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// What a finished pass found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassReport {
    /// Its verdict.
    pub verdict: Verdict,
    /// Position at its end.
    pub at_seq: Seq,
    /// When it ended.
    pub ended: Instant,
    /// How long it took.
    pub took: Duration,
    /// Rows compared.
    pub rows: u64,
    /// Tables compared completely.
    pub tables: u64,
    /// Why it is inconclusive; empty otherwise.
    pub why: String,
    /// What differed.
    pub unequal: Vec<UnequalRange>,
    /// Rows that differ, as far as named.
    pub differences: Vec<Difference>,
}

/// Where a pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassProgress {
    /// Rows compared so far.
    pub rows: u64,
    /// Checks answered so far.
    pub checks: u64,
}

/// A proof, or its absence, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Proof {
    /// The newest pass that was equal, unless it was voided.
    pub equal: Option<PassReport>,
    /// The newest pass that ended, whatever its verdict.
    pub last: Option<PassReport>,
    /// The pass that found a difference which nothing has mended since.
    pub diverged: Option<PassReport>,
    /// A pass under way.
    pub running: Option<PassProgress>,
    /// Why the proof before is void, if it is.
    pub void: Option<String>,
    /// Passes that ended.
    pub passes: u64,
}

impl Proof {
    /// `Ok` while the proof counts, else the reason why not.
    pub fn check(&self, now: Instant, age_max: Duration) -> Result<&PassReport, String> {
        if let Some(diverged) = &self.diverged {
            return Err(format!("diverged: {}", diverged.summary()));
        }
        let Some(equal) = &self.equal else {
            return Err(self.why_unproven());
        };
        let age = now.saturating_duration_since(equal.ended);
        if age > age_max {
            return Err(format!("the proof is {} s old", age.as_secs()));
        }
        Ok(equal)
    }

    fn why_unproven(&self) -> String {
        let running = match &self.running {
            Some(progress) => format!("; a pass has compared {} rows", progress.rows),
            None => String::new(),
        };
        match (&self.last, &self.void) {
            (_, Some(void)) => format!("not proven since {void}{running}"),
            (Some(last), None) => format!("{}{running}", last.summary()),
            (None, None) => format!("not proven yet{running}"),
        }
    }
}

impl PassReport {
    /// One line for people: the verdict, and what it rests on.
    pub fn summary(&self) -> String {
        match self.verdict {
            Verdict::Equal => format!("equal at {}: {} rows compared", self.at_seq, self.rows),
            Verdict::Inconclusive => format!("inconclusive: {}", self.why),
            Verdict::Diverged => match (self.differences.first(), self.unequal.first()) {
                (Some(first), _) => format!(
                    "table {} row {} is {} here ({} rows named)",
                    first.table,
                    first.row.rowid,
                    first.row.kind.word(),
                    self.differences.len()
                ),
                (None, Some(range)) if range.table.is_empty() => range.text.clone(),
                (None, Some(range)) => format!("table {} at {}", range.table, range.seq),
                (None, None) => "no detail".into(),
            },
        }
    }
}

/// One range as the follower compared it.
#[derive(Debug, Clone)]
pub struct Compared {
    /// Number of the pass and of the check.
    pub pass: u64,
    /// Number of the check in the pass.
    pub number: u64,
    /// The table.
    pub table: String,
    /// What was covered of the table before is void.
    pub restart: bool,
    /// The range.
    pub range: KeyRange,
    /// Position.
    pub seq: Seq,
    /// The check looks for rows and covers nothing.
    pub bisecting: bool,
    /// The verdict on the range.
    pub outcome: Outcome,
    /// Rows on the source's side, and on this one.
    pub rows: (u64, u64),
    /// What failed.
    pub text: String,
    /// Differing rows, if they were listed.
    pub differences: Vec<RowDifference>,
}

/// What the end of a pass brings.
#[derive(Debug, Clone)]
pub struct PassClosing {
    /// Number of the pass.
    pub pass: u64,
    /// Position.
    pub seq: Seq,
    /// Checks that the source says it sent.
    pub checks: u64,
    /// Why the source gave up; empty if it did not.
    pub aborted: String,
    /// Schema and final values compared.
    pub outcome: Outcome,
    /// What differs, or failed.
    pub text: String,
    /// The tables this node has at `seq`.
    pub tables: Vec<String>,
}

/// Keeps the book of passes and of the proof.
#[derive(Debug, Default)]
pub struct Prover {
    run: Option<Run>,
    proof: Proof,
}

#[derive(Debug)]
struct Run {
    pass: u64,
    begun: Instant,
    checks: u64,
    rows: u64,
    coverage: BTreeMap<String, Coverage>,
    unequal: Vec<UnequalRange>,
    differences: Vec<Difference>,
    diverged: bool,
    failed: Option<String>,
}

impl Prover {
    /// Nothing is proven.
    pub fn new() -> Self {
        Self::default()
    }

    /// The proof as it stands.
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// A pass begins. One that was under way is inconclusive.
    pub fn begin(&mut self, pass: u64, seq: Seq, outcome: Outcome, text: &str, now: Instant) {
        self.interrupt("another pass began", seq, now);
        let mut run = Run {
            pass,
            begun: now,
            checks: 0,
            rows: 0,
            coverage: BTreeMap::new(),
            unequal: Vec::new(),
            differences: Vec::new(),
            diverged: false,
            failed: None,
        };
        run.whole(seq, outcome, text);
        self.run = Some(run);
        self.show_progress();
    }

    /// A range was compared. A number left out, or a check outside a pass, ends the stream.
    pub fn compared(&mut self, compared: Compared) -> Result<()> {
        let expected = self.run.as_ref().map(|run| (run.pass, run.checks + 1));
        let Some(run) = self
            .run
            .as_mut()
            .filter(|_| expected == Some((compared.pass, compared.number)))
        else {
            return Err(Error::protocol(format!(
                "check {} of pass {} arrived where {expected:?} was due",
                compared.number, compared.pass
            )));
        };
        run.checks += 1;
        run.note(compared);
        self.show_progress();
        Ok(())
    }

    /// A pass ends. Gives its verdict.
    pub fn end(&mut self, closing: &PassClosing, now: Instant) -> Result<Verdict> {
        let run = self.run.take().filter(|run| run.pass == closing.pass);
        let Some(mut run) = run else {
            return Err(Error::protocol(format!(
                "pass {} ended and was not under way",
                closing.pass
            )));
        };
        run.whole(closing.seq, closing.outcome, &closing.text);
        run.close(closing);
        Ok(self.keep(run, closing.seq, closing.tables.len() as u64, now))
    }

    /// The stream ended, or the pass cannot go on: what is under way is inconclusive.
    pub fn interrupt(&mut self, why: &str, seq: Seq, now: Instant) {
        if let Some(mut run) = self.run.take() {
            run.failed.get_or_insert_with(|| why.to_owned());
            self.keep(run, seq, 0, now);
        }
    }

    /// The proof does not count any more. A divergence stays.
    pub fn void(&mut self, why: &str) {
        if self.proof.equal.take().is_some() {
            self.proof.void = Some(why.to_owned());
        }
    }

    /// The data was replaced or mended: nothing is known any more, a divergence neither.
    pub fn forget(&mut self, why: &str) {
        self.run = None;
        self.proof.running = None;
        self.proof.equal = None;
        self.proof.diverged = None;
        self.proof.void = Some(why.to_owned());
    }

    /// The history went on under another node: the proof survives only if that node held
    /// one itself.
    pub fn history_moved(&mut self, source_is_proven: bool) {
        if !source_is_proven {
            self.void("the history went on under a node without a proof");
        }
    }

    fn keep(&mut self, run: Run, seq: Seq, tables: u64, now: Instant) -> Verdict {
        let report = run.report(seq, tables, now);
        let verdict = report.verdict;
        self.proof.running = None;
        self.proof.passes += 1;
        match verdict {
            Verdict::Equal => {
                self.proof.equal = Some(report.clone());
                self.proof.void = None;
            }
            Verdict::Diverged => {
                self.proof.equal = None;
                self.proof.diverged = Some(report.clone());
            }
            Verdict::Inconclusive => {}
        }
        self.proof.last = Some(report);
        verdict
    }

    fn show_progress(&mut self) {
        self.proof.running = self.run.as_ref().map(|run| PassProgress {
            rows: run.rows,
            checks: run.checks,
        });
    }
}

impl Run {
    /// Schema and final values, at the beginning or the end.
    fn whole(&mut self, seq: Seq, outcome: Outcome, text: &str) {
        match outcome {
            Outcome::Equal => {}
            Outcome::Unequal => self.differs(UnequalRange {
                table: String::new(),
                range: KeyRange::ALL,
                seq,
                rows: (0, 0),
                text: text.to_owned(),
            }),
            Outcome::Failed | Outcome::Again => {
                self.failed.get_or_insert_with(|| text.to_owned());
            }
        }
    }

    fn note(&mut self, compared: Compared) {
        if compared.restart {
            self.coverage.remove(&compared.table);
        }
        if compared.bisecting {
            self.name_rows(&compared);
            return;
        }
        match compared.outcome {
            Outcome::Equal => {
                self.rows += compared.rows.1;
                let coverage = self.coverage.entry(compared.table).or_default();
                coverage.add(compared.range);
            }
            Outcome::Unequal => self.differs(UnequalRange {
                text: format!(
                    "table {}: {} rows at the source, {} here, or other content",
                    compared.table, compared.rows.0, compared.rows.1
                ),
                table: compared.table,
                range: compared.range,
                seq: compared.seq,
                rows: compared.rows,
            }),
            Outcome::Failed | Outcome::Again => {
                self.failed.get_or_insert(compared.text);
            }
        }
    }

    fn differs(&mut self, range: UnequalRange) {
        self.diverged = true;
        if self.unequal.len() < NAMED_MAX {
            self.unequal.push(range);
        }
    }

    fn name_rows(&mut self, compared: &Compared) {
        let room = NAMED_MAX - self.differences.len();
        let named = compared.differences.iter().take(room);
        self.differences.extend(named.map(|row| Difference {
            table: compared.table.clone(),
            row: *row,
        }));
    }

    fn close(&mut self, closing: &PassClosing) {
        let mut fail = |why: String| {
            self.failed.get_or_insert(why);
        };
        if !closing.aborted.is_empty() {
            fail(format!("the source gave up: {}", closing.aborted));
        }
        if closing.checks != self.checks {
            fail(format!(
                "the source sent {} checks, {} arrived",
                closing.checks, self.checks
            ));
        }
        for table in &closing.tables {
            let complete = self.coverage.get(table).is_some_and(Coverage::is_complete);
            if !complete {
                fail(format!("table {table} was not compared completely"));
            }
        }
    }

    fn report(self, at_seq: Seq, tables: u64, now: Instant) -> PassReport {
        let verdict = match (self.diverged, &self.failed) {
            (true, _) => Verdict::Diverged,
            (false, Some(_)) => Verdict::Inconclusive,
            (false, None) => Verdict::Equal,
        };
        let why = match verdict {
            Verdict::Inconclusive => self.failed.unwrap_or_default(),
            _ => String::new(),
        };
        PassReport {
            verdict,
            at_seq,
            ended: now,
            took: now.saturating_duration_since(self.begun),
            rows: self.rows,
            tables,
            why,
            unequal: self.unequal,
            differences: self.differences,
        }
    }
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
