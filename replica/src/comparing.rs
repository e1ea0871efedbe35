//! The follower's side of a pass: the same figures, at exactly the same position.
//!
//! The applying thread opens the door: when it comes to a comparison it has applied exactly
//! up to its position, asks the comparing thread to begin a read view, and waits until that
//! view stands. Then it goes on applying, while the other computes in its view. So the
//! comparison sees the one state it speaks of, and applying waits for a BEGIN only.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_engine::adapter::Connection;
use tidegate_engine::catalogue::catalogue;
use tidegate_engine::digest::{self, RangeDigest};
use tidegate_engine::{Engine, ReadView, Seq};

use crate::check::{DifferenceKind, Outcome, RowDifference};
use crate::error::Result;
use crate::objects::{name_differences, named_digests, table_names};
use crate::pass::DIFFERENCES_MAX;
use crate::wire::{Check, NamedDigest, PassBegin, PassEnd};

/// Rows that this side reads of a range whose rows the source has listed.
const ROWS_READ_MAX: usize = 4_096;

/// What is to be compared.
#[derive(Debug, Clone)]
pub enum Comparison {
    /// Schema and final values at the beginning.
    Begin(PassBegin),
    /// A range.
    Range(Check),
    /// Schema and final values at the end.
    End(PassEnd),
}

/// What came of it.
#[derive(Debug)]
pub struct Compared {
    /// What was compared.
    pub comparison: Comparison,
    /// How it compared.
    pub outcome: Outcome,
    /// Rows on this side.
    pub rows: u64,
    /// What differs or failed.
    pub text: String,
    /// Differing rows, if the source listed its own.
    pub differences: Vec<RowDifference>,
    /// The tables of this side, at the end of a pass.
    pub tables: Vec<String>,
    /// Time it took.
    pub took: Duration,
}

/// The comparing thread.
pub struct Comparer {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

struct Job {
    comparison: Comparison,
    stands: SyncSender<()>,
    done: Box<dyn FnOnce(Compared) + Send>,
}

impl Comparison {
    /// Position it speaks of.
    pub fn seq(&self) -> Seq {
        match self {
            Self::Begin(begin) => begin.seq,
            Self::Range(check) => check.seq,
            Self::End(end) => end.seq,
        }
    }

    /// Number of the pass, and of the step in it.
    pub fn number(&self) -> (u64, u64) {
        match self {
            Self::Begin(begin) => (begin.pass, 0),
            Self::Range(check) => (check.pass, check.number),
            Self::End(end) => (end.pass, end.checks + 1),
        }
    }
}

impl Comparer {
    /// Starts the thread.
    pub fn start(engine: Arc<Engine>) -> Result<Self> {
        let (jobs, receiver) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("compare".into())
            .spawn(move || run(&engine, &receiver))
            .map_err(crate::Error::network)?;
        Ok(Self { jobs, thread })
    }

    /// Begins a comparison. Returns when its view stands; `done` is called from the thread.
    pub fn begin(&self, comparison: Comparison, done: impl FnOnce(Compared) + Send + 'static) {
        let (stands, standing) = sync_channel(1);
        let job = Job {
            comparison,
            stands,
            done: Box::new(done),
        };
        if self.jobs.send(job).is_ok() {
            standing.recv().ok();
        }
    }

    /// Finishes what runs and ends the thread.
    pub fn stop(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the comparing thread had panicked");
        }
    }
}

impl Compared {
    /// Could not be compared.
    pub fn failed(comparison: Comparison, why: impl Into<String>) -> Self {
        Self {
            comparison,
            outcome: Outcome::Failed,
            rows: 0,
            text: why.into(),
            differences: Vec::new(),
            tables: Vec::new(),
            took: Duration::ZERO,
        }
    }
}

fn run(engine: &Engine, jobs: &Receiver<Job>) {
    let mut connection = None;
    while let Ok(job) = jobs.recv() {
        let compared = compare(engine, &mut connection, job.comparison, &job.stands);
        if compared.outcome == Outcome::Failed {
            // It may be broken; the next comparison gets a new one.
            connection = None;
        }
        (job.done)(compared);
    }
}

fn compare(
    engine: &Engine,
    connection: &mut Option<Connection>,
    comparison: Comparison,
    stands: &SyncSender<()>,
) -> Compared {
    let begun = Instant::now();
    let connection = match connection {
        Some(connection) => connection,
        none => match engine.store().reader() {
            Ok(new) => none.insert(new),
            Err(error) => return Compared::failed(comparison, error.to_string()),
        },
    };
    let view = ReadView::begin(connection, engine.store().gate());
    stands.send(()).ok();
    let compared = view.map_err(crate::Error::from).and_then(|mut view| {
        if view.head() == comparison.seq() {
            evaluate(&mut view, &comparison)
        } else {
            Err(crate::Error::protocol(format!(
                "the view is at {} instead of {}",
                view.head(),
                comparison.seq()
            )))
        }
    });
    match compared {
        Ok(sides) => Compared {
            comparison,
            outcome: sides.outcome,
            rows: sides.rows,
            text: sides.text,
            differences: sides.differences,
            tables: sides.tables,
            took: begun.elapsed(),
        },
        Err(error) => {
            let mut failed = Compared::failed(comparison, error.to_string());
            if error.is_schema_change() {
                failed.outcome = Outcome::Again;
            }
            failed
        }
    }
}

/// This side, beside the other.
struct Sides {
    outcome: Outcome,
    rows: u64,
    text: String,
    differences: Vec<RowDifference>,
    tables: Vec<String>,
}

fn evaluate(view: &mut ReadView<'_>, comparison: &Comparison) -> Result<Sides> {
    match comparison {
        Comparison::Begin(begin) => {
            let theirs = (begin.schema_hash, begin.finals_hash);
            compare_whole(view, theirs, &begin.objects)
        }
        Comparison::End(end) => compare_whole(view, (end.schema_hash, end.finals_hash), &[]),
        Comparison::Range(check) => match &check.rows {
            Some(theirs) => compare_rows(view, check, theirs),
            None => compare_range(view, check),
        },
    }
}

fn compare_whole(
    view: &mut ReadView<'_>,
    theirs: (u128, u128),
    objects: &[NamedDigest],
) -> Result<Sides> {
    let catalogue = catalogue(view)?;
    let equal = (catalogue.schema_hash, catalogue.finals_hash) == theirs;
    let text = match equal {
        true => String::new(),
        false => name_differences(&named_digests(&catalogue), objects),
    };
    Ok(Sides {
        outcome: outcome(equal),
        rows: 0,
        text,
        differences: Vec::new(),
        tables: table_names(&catalogue),
    })
}

fn compare_range(view: &mut ReadView<'_>, check: &Check) -> Result<Sides> {
    let ours = digest::digest_range(view, &check.table, check.range)?;
    Ok(Sides {
        outcome: outcome(ours == check.digest),
        rows: ours.rows,
        text: String::new(),
        differences: Vec::new(),
        tables: Vec::new(),
    })
}

fn compare_rows(view: &mut ReadView<'_>, check: &Check, theirs: &[(i64, u128)]) -> Result<Sides> {
    let ours = digest::digest_rows(view, &check.table, check.range, ROWS_READ_MAX)?;
    let differences = differing_rows(theirs, &ours, ours.len() == ROWS_READ_MAX);
    let sum = ours.iter().fold(RangeDigest::default(), |sum, (_, hash)| {
        sum.plus(RangeDigest {
            rows: 1,
            hash: *hash,
        })
    });
    Ok(Sides {
        outcome: outcome(sum == check.digest),
        rows: sum.rows,
        text: String::new(),
        differences,
        tables: Vec::new(),
    })
}

/// Merges two lists in order of rowid. When this side was cut off, what lies behind its last
/// row is unknown and not called missing.
fn differing_rows(
    theirs: &[(i64, u128)],
    ours: &[(i64, u128)],
    is_cut_off: bool,
) -> Vec<RowDifference> {
    let known_up_to = match ours.last() {
        Some((last, _)) if is_cut_off => *last,
        _ => i64::MAX,
    };
    let mut theirs = theirs
        .iter()
        .filter(|(id, _)| *id <= known_up_to)
        .peekable();
    let mut ours = ours.iter().peekable();
    let mut found = Vec::new();
    while found.len() < DIFFERENCES_MAX {
        let (rowid, kind) = match (theirs.peek(), ours.peek()) {
            (None, None) => break,
            (Some((there, a)), Some((here, b))) if there == here => {
                let same = a == b;
                theirs.next();
                ours.next();
                if same {
                    continue;
                }
                (*there, DifferenceKind::Changed)
            }
            (Some((there, _)), here) if here.is_none_or(|(here, _)| there < here) => {
                theirs.next();
                (*there, DifferenceKind::Missing)
            }
            (_, Some((here, _))) => {
                ours.next();
                (*here, DifferenceKind::Extra)
            }
            (Some(_), None) => unreachable!("the arm before takes it"),
        };
        found.push(RowDifference { rowid, kind });
    }
    found
}

fn outcome(equal: bool) -> Outcome {
    match equal {
        true => Outcome::Equal,
        false => Outcome::Unequal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_differ_are_named_from_this_side() {
        let theirs = [(1, 10), (2, 20), (4, 40), (9, 90)];
        let ours = [(1, 10), (2, 21), (3, 30), (9, 90), (12, 1)];
        let found: Vec<_> = differing_rows(&theirs, &ours, false)
            .iter()
            .map(|row| (row.rowid, row.kind.word()))
            .collect();
        let expected = [(2, "changed"), (3, "extra"), (4, "missing"), (12, "extra")];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_lies_behind_a_cut_is_not_called_missing() {
        let theirs = [(1, 10), (5, 50)];
        let ours = [(0, 0), (1, 10)];
        assert_eq!(differing_rows(&theirs, &ours, true).len(), 1);
        assert_eq!(differing_rows(&theirs, &ours, false).len(), 2);
        assert!(differing_rows(&[], &[], false).is_empty());
    }
}
