//! A convergence pass as its source plans it: which table, which range, in which order.
//!
//! A pass cuts every table into ranges of rowids, open at both ends, and asks the follower
//! about one range at a time. The source computes its side in the very read transaction of a
//! batch, so both sides speak of one position; writes never stop for it.
//!
//! Each table begins with its tail: its highest rowid is fixed, and what lies behind is
//! compared first, so a table that grows while the pass runs cannot make it endless. (A
//! small table is compared whole, in one step.) A table that is created, dropped or renamed
//! in the meantime is started again, because what was compared under its name may have been
//! another table.
//!
//! A range that differs is halved until its rows can be listed, and the pass then goes on:
//! it names what differs, up to [`DIFFERENCES_MAX`] rows, and is not shortened by it. What
//! vanishes while it is halved stays reported as a range.
//!
//! The plan reads nothing and sends nothing. Its owner asks [`Pass::next`] what the next
//! view should carry, computes it, tells [`Pass::asked`], and later [`Pass::answered`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tidegate_engine::Seq;
use tidegate_engine::digest::{KeyRange, RangeDigest, RangeLimits};

use crate::check::{Difference, Outcome, RowDifference, UnequalRange};
use crate::error::{Error, Result};

/// Differing rows that a pass names; afterwards it only counts ranges.
pub const DIFFERENCES_MAX: usize = 64;
/// Rows of a range that are listed one by one instead of halving further.
pub const LISTED_ROWS_MAX: u64 = 512;
/// Checks that halving may take in one pass.
const BISECTING_MAX: u64 = 1_000;
/// A range that takes this long on the slower side is right: it delays batches by no more.
const RANGE_TARGET: Duration = Duration::from_millis(5);
const RANGE_ROWS: std::ops::RangeInclusive<u64> = 256..=262_144;
const RANGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// How a pass behaves.
#[derive(Debug, Clone, Copy)]
pub struct PassLimits {
    /// An answer later than this ends the pass.
    pub answer_deadline: Duration,
    /// Share of the time that may go into comparing, in percent; 100 means no pauses.
    pub duty_percent: u32,
}

/// What the next view should carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Schema and final values, at the beginning.
    Begin,
    /// Fix the table's last rowid, and compare what lies behind it; or the whole table if it
    /// fits into `limits`.
    Tail {
        /// The table.
        table: String,
        /// Bounds of a range.
        limits: StepLimits,
    },
    /// The next range of the walk.
    Range {
        /// The table.
        table: String,
        /// Rowids above this one.
        after: Option<i64>,
        /// The walk ends here.
        last: i64,
        /// Bounds of a range.
        limits: StepLimits,
    },
    /// The first half of a range that differs.
    Half {
        /// The table.
        table: String,
        /// The whole range.
        range: KeyRange,
        /// Rows to take, about half.
        rows: u64,
    },
    /// Each row of a range that differs.
    Rows {
        /// The table.
        table: String,
        /// The range.
        range: KeyRange,
    },
    /// Schema and final values, at the end.
    End,
}

/// Bounds of one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Rows.
    pub rows_max: u64,
    /// Bytes of row content.
    pub bytes_max: u64,
}

/// A step, computed and about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Position of the view.
    pub seq: Seq,
    /// The range compared; [`KeyRange::ALL`] for [`Step::Begin`] and [`Step::End`].
    pub range: KeyRange,
    /// The source's side.
    pub digest: RangeDigest,
    /// For [`Step::Tail`]: the table's last rowid.
    pub last: Option<i64>,
    /// Time the source took.
    pub took: Duration,
}

/// What the plan adds to a step that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Number of the pass.
    pub pass: u64,
    /// Number of the step: 0 for the beginning, then from 1.
    pub number: u64,
    /// What was compared of the table before does not count.
    pub restart: bool,
    /// The step looks for differing rows and covers nothing.
    pub bisecting: bool,
}

/// The follower's answer, as far as the plan needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Number of the pass.
    pub pass: u64,
    /// Number of the step.
    pub number: u64,
    /// How it compared.
    pub outcome: Outcome,
    /// Rows on the follower's side.
    pub rows: u64,
    /// What differs or failed, for people.
    pub text: String,
    /// Differing rows, after [`Step::Rows`].
    pub differences: Vec<RowDifference>,
    /// Time the follower took.
    pub took: Duration,
}

/// What happened to tables between two views.
#[derive(Debug, Clone, Default)]
pub struct TableMoves {
    /// Names, folded, of tables created, dropped or renamed; both names of a rename.
    pub moved: BTreeSet<String>,
    /// The tables that exist now.
    pub tables: Vec<String>,
}

/// A pass under way.
#[derive(Debug)]
pub struct Pass {
    number: u64,
    limits: PassLimits,
    phase: Phase,
    walks: Vec<Walk>,
    suspects: Vec<Suspect>,
    outstanding: Option<Outstanding>,
    steps: u64,
    bisecting: u64,
    range_rows: u64,
    resume_at: Option<Instant>,
    rows: u64,
    unequal: Vec<UnequalRange>,
    differences: Vec<Difference>,
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begin,
    Tables,
    End,
    Over,
}

#[derive(Debug, Clone)]
struct Walk {
    table: String,
    state: WalkState,
    restart: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkState {
    Waiting,
    Walking { after: Option<i64>, last: i64 },
    Done,
}

#[derive(Debug, Clone)]
struct Suspect {
    table: String,
    range: KeyRange,
    rows: u64,
}

#[derive(Debug)]
struct Outstanding {
    number: u64,
    step: Step,
    asked: Asked,
    since: Instant,
    /// The walk as it was before the step.
    before: Option<Walk>,
}

impl Default for PassLimits {
    fn default() -> Self {
        Self {
            answer_deadline: Duration::from_secs(60),
            duty_percent: 100,
        }
    }
}

impl From<StepLimits> for RangeLimits {
    fn from(limits: StepLimits) -> Self {
        Self {
            rows_max: limits.rows_max,
            bytes_max: limits.bytes_max,
        }
    }
}

impl Pass {
    /// Plans a pass over `tables`. Numbers start at 1 in each stream.
    pub fn new(number: u64, tables: Vec<String>, limits: PassLimits) -> Self {
        let walk = |table| Walk {
            table,
            state: WalkState::Waiting,
            restart: false,
        };
        Self {
            number,
            limits,
            phase: Phase::Begin,
            walks: tables.into_iter().map(walk).collect(),
            suspects: Vec::new(),
            outstanding: None,
            steps: 0,
            bisecting: 0,
            range_rows: 4_096,
            resume_at: None,
            rows: 0,
            unequal: Vec::new(),
            differences: Vec::new(),
            failed: None,
        }
    }

    /// What the next view should carry. `None` while an answer is due, during a pause, and
    /// when the pass is over.
    pub fn next(&self, now: Instant) -> Option<Step> {
        if self.outstanding.is_some() || self.resume_at.is_some_and(|at| now < at) {
            return None;
        }
        match self.phase {
            Phase::Begin => Some(Step::Begin),
            Phase::Tables => Some(self.suspect_step().unwrap_or_else(|| self.walk_step())),
            Phase::End => Some(Step::End),
            Phase::Over => None,
        }
    }

    /// The step was computed and is about to be sent.
    ///
    /// # Panics
    ///
    /// If an answer is still due: one step is outstanding at most.
    pub fn asked(&mut self, step: Step, asked: Asked, now: Instant) -> Ticket {
        assert!(
            self.outstanding.is_none(),
            "one step is outstanding at most"
        );
        let bisecting = matches!(step, Step::Half { .. } | Step::Rows { .. });
        let number = self.steps;
        self.steps += 1;
        let before = self.walk_of(&step).cloned();
        let restart = self.advance(&step, &asked);
        if bisecting {
            self.bisecting += 1;
            self.suspects.pop();
        } else {
            self.rows += asked.digest.rows;
        }
        self.outstanding = Some(Outstanding {
            number,
            step,
            asked,
            since: now,
            before,
        });
        Ticket {
            pass: self.number,
            number,
            restart,
            bisecting,
        }
    }

    /// The follower answered. An answer to nothing that was asked ends the stream.
    pub fn answered(&mut self, answer: Answer, now: Instant) -> Result<()> {
        let due = self.outstanding.take();
        let due = due
            .filter(|due| (answer.pass, answer.number) == (self.number, due.number))
            .ok_or_else(|| {
                Error::protocol(format!(
                    "an answer to step {} of pass {}, which was not asked",
                    answer.number, answer.pass
                ))
            })?;
        if answer.outcome == Outcome::Again {
            self.take_back(due);
            return Ok(());
        }
        if due.step == Step::Begin {
            self.phase = Phase::Tables;
        }
        self.judge(&due, &answer);
        self.pace(&due, &answer, now);
        self.finish_tables();
        if due.step == Step::End {
            self.phase = Phase::Over;
        }
        Ok(())
    }

    /// Tables were created, dropped or renamed since the last view: those start again.
    pub fn tables_moved(&mut self, moves: &TableMoves) {
        let has_moved = |table: &str| moves.moved.contains(&table.to_ascii_lowercase());
        let mut walks = Vec::with_capacity(moves.tables.len());
        for table in &moves.tables {
            let known = self.walks.iter().find(|walk| walk.table == *table);
            walks.push(match known {
                Some(walk) if !has_moved(table) => walk.clone(),
                _ => Walk {
                    table: table.clone(),
                    state: WalkState::Waiting,
                    restart: true,
                },
            });
        }
        self.walks = walks;
        self.suspects
            .retain(|suspect| !has_moved(&suspect.table) && moves.tables.contains(&suspect.table));
        if self.phase == Phase::End {
            self.phase = Phase::Tables;
            self.finish_tables();
        }
    }

    /// A step could not be computed: the pass ends without a verdict of equality.
    pub fn fail(&mut self, why: impl Into<String>) {
        self.failed.get_or_insert(why.into());
        self.phase = Phase::End;
        self.suspects.clear();
        self.resume_at = None;
    }

    /// Ends a pass whose answer is overdue. True if it just did.
    pub fn expire(&mut self, now: Instant) -> bool {
        let overdue = self
            .outstanding
            .as_ref()
            .is_some_and(|due| now.duration_since(due.since) > self.limits.answer_deadline);
        if overdue {
            self.failed
                .get_or_insert("the follower did not answer in time".into());
            self.phase = Phase::Over;
            self.outstanding = None;
        }
        overdue
    }

    /// When [`Self::next`] is worth asking again, if nothing else happens.
    pub fn wake_at(&self) -> Option<Instant> {
        match &self.outstanding {
            Some(due) => Some(due.since + self.limits.answer_deadline),
            None => self.resume_at,
        }
    }

    /// True when nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// True from the first step on.
    pub fn has_begun(&self) -> bool {
        self.steps > 0
    }

    /// Number of this pass.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Checks sent: steps without the beginning and the end.
    pub fn checks(&self) -> u64 {
        self.steps.saturating_sub(1)
    }

    /// Rows compared so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Tables done, and tables in all.
    pub fn tables(&self) -> (usize, usize) {
        let done = self.walks.iter().filter(|w| w.state == WalkState::Done);
        (done.count(), self.walks.len())
    }

    /// Ranges that differed.
    pub fn unequal(&self) -> &[UnequalRange] {
        &self.unequal
    }

    /// Rows that differ, as far as named.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Why the pass proves nothing, if so.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    fn step_limits(&self) -> StepLimits {
        StepLimits {
            rows_max: self.range_rows,
            bytes_max: RANGE_BYTES_MAX,
        }
    }

    fn suspect_step(&self) -> Option<Step> {
        let suspect = self.suspects.last()?;
        let (table, range) = (suspect.table.clone(), suspect.range);
        Some(if suspect.rows <= LISTED_ROWS_MAX {
            Step::Rows { table, range }
        } else {
            Step::Half {
                table,
                range,
                rows: suspect.rows / 2,
            }
        })
    }

    fn walk_step(&self) -> Step {
        let limits = self.step_limits();
        let walk = self.walks.iter().find(|w| w.state != WalkState::Done);
        let Some(walk) = walk else {
            return Step::End;
        };
        let table = walk.table.clone();
        match walk.state {
            WalkState::Walking { after, last } => Step::Range {
                table,
                after,
                last,
                limits,
            },
            _ => Step::Tail { table, limits },
        }
    }

    /// The step was spoiled: as if it had not been asked. A table that was restarted in the
    /// meantime begins anew in any case.
    fn take_back(&mut self, due: Outstanding) {
        self.steps -= 1;
        match (&due.step, due.before) {
            (Step::Half { table, range, rows }, _) => self.suspect(table, *range, rows * 2),
            (Step::Rows { table, range }, _) => {
                self.suspect(table, *range, due.asked.digest.rows);
            }
            (_, Some(before)) => {
                let walks = self.walks.iter_mut();
                for walk in walks.filter(|walk| walk.table == before.table && !walk.restart) {
                    *walk = before.clone();
                }
            }
            (_, None) => {}
        }
    }

    fn walk_of(&self, step: &Step) -> Option<&Walk> {
        match step {
            Step::Tail { table, .. } | Step::Range { table, .. } => {
                self.walks.iter().find(|walk| walk.table == *table)
            }
            _ => None,
        }
    }

    /// Moves the walk behind the range that is being asked about. Gives the restart mark.
    fn advance(&mut self, step: &Step, asked: &Asked) -> bool {
        let (Step::Tail { table, .. } | Step::Range { table, .. }) = step else {
            return false;
        };
        let walk = self.walks.iter_mut().find(|w| w.table == *table);
        let Some(walk) = walk else {
            return false;
        };
        walk.state = match (step, asked.last) {
            (Step::Tail { .. }, Some(last)) if asked.range != KeyRange::ALL => {
                WalkState::Walking { after: None, last }
            }
            (Step::Range { last, .. }, _) if asked.range.up_to != Some(*last) => {
                WalkState::Walking {
                    after: asked.range.up_to,
                    last: *last,
                }
            }
            _ => WalkState::Done,
        };
        std::mem::take(&mut walk.restart)
    }

    fn judge(&mut self, due: &Outstanding, answer: &Answer) {
        match (&due.step, answer.outcome) {
            (_, Outcome::Failed | Outcome::Again) => {
                self.failed.get_or_insert_with(|| answer.text.clone());
            }
            (Step::Begin | Step::End, Outcome::Unequal) => {
                self.note_unequal("", due, answer);
            }
            (Step::Begin | Step::End, Outcome::Equal) => {}
            (Step::Tail { table, .. } | Step::Range { table, .. }, Outcome::Unequal) => {
                self.note_unequal(table, due, answer);
                self.suspect(table, due.asked.range, due.asked.digest.rows);
            }
            (Step::Tail { .. } | Step::Range { .. }, Outcome::Equal) => {}
            (Step::Half { table, range, rows }, outcome) => {
                let half = due.asked.range;
                if half.up_to != range.up_to {
                    let rest = KeyRange {
                        after: half.up_to,
                        up_to: range.up_to,
                    };
                    self.suspect(table, rest, *rows);
                }
                if outcome == Outcome::Unequal {
                    self.suspect(table, half, (*rows).min(due.asked.digest.rows));
                }
            }
            (Step::Rows { table, .. }, _) => self.note_rows(table, &answer.differences),
        }
    }

    fn note_unequal(&mut self, table: &str, due: &Outstanding, answer: &Answer) {
        self.unequal.push(UnequalRange {
            table: table.to_owned(),
            range: due.asked.range,
            seq: due.asked.seq,
            rows: (due.asked.digest.rows, answer.rows),
            text: answer.text.clone(),
        });
    }

    fn suspect(&mut self, table: &str, range: KeyRange, rows: u64) {
        let enough = self.differences.len() >= DIFFERENCES_MAX || self.bisecting >= BISECTING_MAX;
        // The table may be gone since the step was asked.
        let exists = self.walks.iter().any(|walk| walk.table == table);
        if exists && !enough {
            self.suspects.push(Suspect {
                table: table.to_owned(),
                range,
                rows,
            });
        }
    }

    fn note_rows(&mut self, table: &str, rows: &[RowDifference]) {
        let room = DIFFERENCES_MAX - self.differences.len().min(DIFFERENCES_MAX);
        let named = rows.iter().take(room).map(|row| Difference {
            table: table.to_owned(),
            row: *row,
        });
        self.differences.extend(named);
        if self.differences.len() >= DIFFERENCES_MAX {
            self.suspects.clear();
        }
    }

    /// Adapts the size of ranges to the slower side, and pauses as the duty asks.
    fn pace(&mut self, due: &Outstanding, answer: &Answer, now: Instant) {
        let took = due.asked.took.max(answer.took);
        if matches!(due.step, Step::Range { .. }) {
            if took < RANGE_TARGET / 2 {
                self.range_rows *= 2;
            } else if took > RANGE_TARGET * 2 {
                self.range_rows /= 2;
            }
            let (least, most) = (*RANGE_ROWS.start(), *RANGE_ROWS.end());
            self.range_rows = self.range_rows.clamp(least, most);
        }
        let duty = self.limits.duty_percent.clamp(1, 100);
        let pause = took * (100 - duty) / duty;
        self.resume_at = (!pause.is_zero()).then(|| now + pause);
    }

    fn finish_tables(&mut self) {
        let all_done = self.walks.iter().all(|w| w.state == WalkState::Done);
        if self.phase == Phase::Tables && all_done && self.suspects.is_empty() {
            self.phase = Phase::End;
        }
    }
}

#[cfg(test)]
#[path = "pass_tests.rs"]
mod tests;
