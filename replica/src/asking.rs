//! The source's side of a step of a pass, computed in the view of a batch.

use std::collections::BTreeSet;
use std::time::Instant;

use tidegate_engine::catalogue::catalogue;
use tidegate_engine::ddl::DdlEffect;
use tidegate_engine::digest::{self, KeyRange, RangeDigest};
use tidegate_engine::{ReadView, Seq, names};
use tidegate_proto::peer::v1 as pb;

use crate::error::{Error, Result};
use crate::objects::{named_digests, table_names};
use crate::pass::{Asked, LISTED_ROWS_MAX, Pass, Step, TableMoves, Ticket};
use crate::wire::{Check, NAME_BYTES_MAX, NamedDigest, PassBegin, PassEnd};

/// A step with the source's side of it.
#[derive(Debug)]
pub struct Question {
    step: Step,
    asked: Asked,
    whole: Whole,
    rows: Option<Vec<(i64, u128)>>,
}

/// Schema and final values, for the beginning and the end.
#[derive(Debug, Default)]
struct Whole {
    schema_hash: u128,
    finals_hash: u128,
    tables: u64,
    objects: Vec<NamedDigest>,
}

/// The user tables of the view, for the plan of a pass.
pub fn tables(view: &mut ReadView<'_>) -> Result<Vec<String>> {
    Ok(table_names(&catalogue(view)?))
}

/// What happened to tables since `since`, or `None` if no schema statement ran.
pub fn table_moves(view: &mut ReadView<'_>, since: Seq) -> Result<Option<TableMoves>> {
    let sql = format!(
        "SELECT sql FROM {} WHERE id > ? ORDER BY id",
        names::DDL_TABLE
    );
    let rows = view.query_all(&sql, &[since.to_sql().into()])?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut moved = BTreeSet::new();
    for row in &rows {
        let sql = row[0].as_text().unwrap_or_default();
        match DdlEffect::of(sql)? {
            DdlEffect::CreateTable(name)
            | DdlEffect::CreateTableAs(name)
            | DdlEffect::DropTable(name) => {
                moved.insert(name);
            }
            DdlEffect::RenameTable { from, to } => {
                moved.insert(from);
                moved.insert(to);
            }
            DdlEffect::Trigger | DdlEffect::Other => {}
        }
    }
    let tables = tables(view)?;
    Ok(Some(TableMoves { moved, tables }))
}

impl Question {
    /// Computes the source's side.
    pub fn compute(view: &mut ReadView<'_>, step: Step) -> Result<Self> {
        let begun = Instant::now();
        let mut question = Self {
            asked: Asked {
                seq: view.head(),
                range: KeyRange::ALL,
                digest: RangeDigest::default(),
                last: None,
                took: begun.elapsed(),
            },
            step,
            whole: Whole::default(),
            rows: None,
        };
        question.fill(view)?;
        question.asked.took = begun.elapsed();
        Ok(question)
    }

    /// The end of a pass that failed: nothing is compared any more.
    pub fn give_up(view: &ReadView<'_>) -> Self {
        Self {
            step: Step::End,
            asked: Asked {
                seq: view.head(),
                range: KeyRange::ALL,
                digest: RangeDigest::default(),
                last: None,
                took: std::time::Duration::ZERO,
            },
            whole: Whole::default(),
            rows: None,
        }
    }

    /// Registers the step with the plan and makes the message.
    pub fn ask(self, pass: &mut Pass, now: Instant) -> pb::SourceMessage {
        let aborted = pass.failed().unwrap_or_default().to_owned();
        let ticket = pass.asked(self.step.clone(), self.asked, now);
        self.message(ticket, aborted)
    }

    fn fill(&mut self, view: &mut ReadView<'_>) -> Result<()> {
        let step = self.step.clone();
        match &step {
            Step::Begin | Step::End => self.fill_whole(view)?,
            Step::Tail { table, limits } => {
                bound_name(table)?;
                self.asked.last = digest::last_rowid(view, table)?;
                let Some(last) = self.asked.last else {
                    self.asked.digest = digest::digest_range(view, table, KeyRange::ALL)?;
                    return Ok(());
                };
                let (first, digest) =
                    digest::digest_next(view, table, None, last, (*limits).into())?;
                if first.up_to == Some(last) {
                    // Nothing lies behind the last rowid in this very view.
                    self.asked.digest = digest;
                } else {
                    self.asked.range = KeyRange {
                        after: Some(last),
                        up_to: None,
                    };
                    self.asked.digest = digest::digest_range(view, table, self.asked.range)?;
                }
            }
            Step::Range {
                table,
                after,
                last,
                limits,
            } => {
                let next = digest::digest_next(view, table, *after, *last, (*limits).into())?;
                (self.asked.range, self.asked.digest) = next;
            }
            Step::Half { table, range, rows } => {
                let cut = digest::cut(view, table, range.after, *rows)?;
                let is_inside = cut.up_to.is_some_and(|end| range.contains(end));
                self.asked.range = if is_inside { cut } else { *range };
                self.asked.digest = digest::digest_range(view, table, self.asked.range)?;
            }
            Step::Rows { table, range } => {
                let limit = usize::try_from(LISTED_ROWS_MAX).expect("a small number");
                let rows = digest::digest_rows(view, table, *range, limit + 1)?;
                self.fill_rows(rows, *range, limit);
            }
        }
        Ok(())
    }

    /// A range may have grown since it was measured; then only its first rows are listed.
    fn fill_rows(&mut self, mut rows: Vec<(i64, u128)>, range: KeyRange, limit: usize) {
        self.asked.range = range;
        if rows.len() > limit {
            rows.truncate(limit);
            self.asked.range.up_to = rows.last().map(|(rowid, _)| *rowid);
        }
        let one = |(_, hash): &(i64, u128)| RangeDigest {
            rows: 1,
            hash: *hash,
        };
        self.asked.digest = rows
            .iter()
            .map(one)
            .fold(RangeDigest::default(), RangeDigest::plus);
        self.rows = Some(rows);
    }

    fn fill_whole(&mut self, view: &mut ReadView<'_>) -> Result<()> {
        let catalogue = catalogue(view)?;
        self.whole = Whole {
            schema_hash: catalogue.schema_hash,
            finals_hash: catalogue.finals_hash,
            tables: catalogue.tables.len() as u64,
            objects: named_digests(&catalogue),
        };
        Ok(())
    }

    fn message(self, ticket: Ticket, aborted: String) -> pb::SourceMessage {
        let (pass, seq) = (ticket.pass, self.asked.seq);
        match self.step {
            Step::Begin => PassBegin {
                pass,
                seq,
                schema_hash: self.whole.schema_hash,
                finals_hash: self.whole.finals_hash,
                tables: self.whole.tables,
                objects: self.whole.objects,
            }
            .encode(),
            Step::End => PassEnd {
                pass,
                seq,
                schema_hash: self.whole.schema_hash,
                finals_hash: self.whole.finals_hash,
                checks: ticket.number - 1,
                aborted,
            }
            .encode(),
            Step::Tail { table, .. }
            | Step::Range { table, .. }
            | Step::Half { table, .. }
            | Step::Rows { table, .. } => Check {
                pass,
                number: ticket.number,
                table,
                restart: ticket.restart,
                range: self.asked.range,
                seq,
                digest: self.asked.digest,
                rows: self.rows,
                bisecting: ticket.bisecting,
            }
            .encode(),
        }
    }
}

fn bound_name(table: &str) -> Result<()> {
    if table.len() <= NAME_BYTES_MAX {
        Ok(())
    } else {
        Err(Error::invalid(
            "table",
            "has a name too long to be compared",
        ))
    }
}
