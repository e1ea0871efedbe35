//! The messages of a convergence pass.

use std::time::Duration;

use tidegate_engine::Seq;
use tidegate_engine::digest::{KeyRange, RangeDigest};
use tidegate_proto::peer::v1 as pb;

use super::handshake::unknown;
use super::{hash, put_hash, put_text, seq};
use crate::check::{DifferenceKind, Outcome, RowDifference};
use crate::error::{Error, Result};
use crate::pass::{Answer, DIFFERENCES_MAX, LISTED_ROWS_MAX};
use crate::proof::Verdict;

/// Bytes that the digests of single objects may take in one message.
const OBJECTS_BYTES_MAX: usize = 512 * 1024;
/// Bytes of a table's name. A longer one cannot be compared, which fails the pass.
pub const NAME_BYTES_MAX: usize = 64 * 1024;

/// A pass begins.
#[derive(Debug, Clone)]
pub struct PassBegin {
    /// Number of the pass.
    pub pass: u64,
    /// Position.
    pub seq: Seq,
    /// Hash of the schema.
    pub schema_hash: u128,
    /// Hash of the final values.
    pub finals_hash: u128,
    /// Tables to come.
    pub tables: u64,
    /// Digests of single objects; empty if they would not fit.
    pub objects: Vec<NamedDigest>,
}

/// Digest of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDigest {
    /// table, index, view, trigger, sequence, user_version, application_id.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its digest.
    pub hash: u128,
}

/// A range to compare.
#[derive(Debug, Clone)]
pub struct Check {
    /// Number of the pass.
    pub pass: u64,
    /// Number of the check.
    pub number: u64,
    /// The table.
    pub table: String,
    /// What was covered of it before is void.
    pub restart: bool,
    /// The range.
    pub range: KeyRange,
    /// Position.
    pub seq: Seq,
    /// The source's side.
    pub digest: RangeDigest,
    /// The source's rows one by one, when rows are looked for.
    pub rows: Option<Vec<(i64, u128)>>,
    /// Covers nothing.
    pub bisecting: bool,
}

/// A pass ends.
#[derive(Debug, Clone)]
pub struct PassEnd {
    /// Number of the pass.
    pub pass: u64,
    /// Position.
    pub seq: Seq,
    /// Hash of the schema.
    pub schema_hash: u128,
    /// Hash of the final values.
    pub finals_hash: u128,
    /// Checks sent.
    pub checks: u64,
    /// Why the source gave up.
    pub aborted: String,
}

/// A follower's answer, and its verdict if the pass is over.
#[derive(Debug)]
pub struct CheckReply {
    /// What the plan needs.
    pub answer: Answer,
    /// On the last answer of a pass.
    pub verdict: Option<Verdict>,
}

impl PassBegin {
    pub(super) fn decode(begin: pb::PassBegin) -> Result<Self> {
        let objects = begin.objects.into_iter().map(|object| {
            Ok(NamedDigest {
                kind: object.kind,
                name: object.name,
                hash: hash("pass_begin.objects.hash", &object.hash)?,
            })
        });
        Ok(Self {
            pass: begin.pass,
            seq: seq("pass_begin.seq", begin.seq)?,
            schema_hash: hash("pass_begin.schema_hash", &begin.schema_hash)?,
            finals_hash: hash("pass_begin.finals_hash", &begin.finals_hash)?,
            tables: begin.tables,
            objects: objects.collect::<Result<_>>()?,
        })
    }

    /// As a message. Digests of single objects that would not fit are left out, all of them.
    pub fn encode(&self) -> pb::SourceMessage {
        let bytes: usize = self
            .objects
            .iter()
            .map(|object| object.kind.len() + object.name.len() + 32)
            .sum();
        let fits = bytes <= OBJECTS_BYTES_MAX;
        let objects = self.objects.iter().filter(|_| fits);
        let begin = pb::PassBegin {
            pass: self.pass,
            seq: self.seq.get(),
            schema_hash: put_hash(self.schema_hash),
            finals_hash: put_hash(self.finals_hash),
            tables: self.tables,
            objects: objects
                .map(|object| pb::NamedDigest {
                    kind: object.kind.clone(),
                    name: object.name.clone(),
                    hash: put_hash(object.hash),
                })
                .collect(),
        };
        pb::SourceMessage {
            kind: Some(pb::source_message::Kind::PassBegin(begin)),
        }
    }
}

impl Check {
    pub(super) fn decode(check: pb::Check) -> Result<Self> {
        if check.row_digests.len() as u64 > LISTED_ROWS_MAX {
            return Err(Error::invalid(
                "check.row_digests",
                format!("lists {} rows", check.row_digests.len()),
            ));
        }
        let row = |row: pb::RowDigest| {
            let hash = hash("check.row_digests.hash", &row.hash)?;
            Ok((row.rowid, hash))
        };
        let rows: Vec<_> = check
            .row_digests
            .into_iter()
            .map(row)
            .collect::<Result<_>>()?;
        Ok(Self {
            pass: check.pass,
            number: check.number,
            table: check.table,
            restart: check.restart,
            range: KeyRange {
                after: check.after,
                up_to: check.up_to,
            },
            seq: seq("check.seq", check.seq)?,
            digest: RangeDigest {
                rows: check.rows,
                hash: hash("check.hash", &check.hash)?,
            },
            rows: check.lists_rows.then_some(rows),
            bisecting: check.bisecting,
        })
    }

    /// As a message.
    pub fn encode(&self) -> pb::SourceMessage {
        let rows = self.rows.as_deref().unwrap_or_default();
        let check = pb::Check {
            pass: self.pass,
            number: self.number,
            table: self.table.clone(),
            restart: self.restart,
            after: self.range.after,
            up_to: self.range.up_to,
            seq: self.seq.get(),
            rows: self.digest.rows,
            hash: put_hash(self.digest.hash),
            row_digests: rows
                .iter()
                .map(|(rowid, hash)| pb::RowDigest {
                    rowid: *rowid,
                    hash: put_hash(*hash),
                })
                .collect(),
            bisecting: self.bisecting,
            lists_rows: self.rows.is_some(),
        };
        pb::SourceMessage {
            kind: Some(pb::source_message::Kind::Check(check)),
        }
    }
}

impl PassEnd {
    pub(super) fn decode(end: pb::PassEnd) -> Result<Self> {
        Ok(Self {
            pass: end.pass,
            seq: seq("pass_end.seq", end.seq)?,
            schema_hash: hash("pass_end.schema_hash", &end.schema_hash)?,
            finals_hash: hash("pass_end.finals_hash", &end.finals_hash)?,
            checks: end.checks,
            aborted: end.aborted,
        })
    }

    /// As a message.
    pub fn encode(&self) -> pb::SourceMessage {
        let end = pb::PassEnd {
            pass: self.pass,
            seq: self.seq.get(),
            schema_hash: put_hash(self.schema_hash),
            finals_hash: put_hash(self.finals_hash),
            checks: self.checks,
            aborted: put_text(&self.aborted),
        };
        pb::SourceMessage {
            kind: Some(pb::source_message::Kind::PassEnd(end)),
        }
    }
}

impl CheckReply {
    pub(super) fn decode(result: pb::CheckResult) -> Result<Self> {
        use pb::check_result::Outcome as Wire;
        let outcome = match result.outcome() {
            Wire::Equal => Outcome::Equal,
            Wire::Unequal => Outcome::Unequal,
            Wire::Failed => Outcome::Failed,
            Wire::Again => Outcome::Again,
            Wire::Unspecified => return Err(unknown("check_result.outcome", result.outcome)),
        };
        let verdict = match result.verdict() {
            pb::Verdict::Unspecified => None,
            pb::Verdict::Equal => Some(Verdict::Equal),
            pb::Verdict::Diverged => Some(Verdict::Diverged),
            pb::Verdict::Inconclusive => Some(Verdict::Inconclusive),
        };
        let differences = result.differences.iter().take(DIFFERENCES_MAX);
        Ok(Self {
            answer: Answer {
                pass: result.pass,
                number: result.number,
                outcome,
                rows: result.rows,
                text: result.text,
                differences: differences.map(difference).collect::<Result<_>>()?,
                took: Duration::from_micros(result.elapsed_us),
            },
            verdict,
        })
    }
}

/// A follower's answer as a message.
pub fn check_result(answer: &Answer, verdict: Option<Verdict>) -> pb::FollowerMessage {
    use pb::check_result::Outcome as Wire;
    let outcome = match answer.outcome {
        Outcome::Equal => Wire::Equal,
        Outcome::Unequal => Wire::Unequal,
        Outcome::Failed => Wire::Failed,
        Outcome::Again => Wire::Again,
    };
    let differences = answer.differences.iter().take(DIFFERENCES_MAX);
    let result = pb::CheckResult {
        pass: answer.pass,
        number: answer.number,
        outcome: outcome.into(),
        rows: answer.rows,
        hash: Vec::new(),
        text: put_text(&answer.text),
        differences: differences.map(put_difference).collect(),
        verdict: verdict.map_or(pb::Verdict::Unspecified, put_verdict).into(),
        elapsed_us: u64::try_from(answer.took.as_micros()).unwrap_or(u64::MAX),
    };
    pb::FollowerMessage {
        kind: Some(pb::follower_message::Kind::CheckResult(result)),
    }
}

pub(super) fn put_verdict(verdict: Verdict) -> pb::Verdict {
    match verdict {
        Verdict::Equal => pb::Verdict::Equal,
        Verdict::Diverged => pb::Verdict::Diverged,
        Verdict::Inconclusive => pb::Verdict::Inconclusive,
    }
}

fn difference(row: &pb::RowDifference) -> Result<RowDifference> {
    use pb::row_difference::Kind;
    let kind = match row.kind() {
        Kind::Changed => DifferenceKind::Changed,
        Kind::Missing => DifferenceKind::Missing,
        Kind::Extra => DifferenceKind::Extra,
        Kind::Unspecified => return Err(unknown("row_difference.kind", row.kind)),
    };
    Ok(RowDifference {
        rowid: row.rowid,
        kind,
    })
}

fn put_difference(row: &RowDifference) -> pb::RowDifference {
    use pb::row_difference::Kind;
    let kind = match row.kind {
        DifferenceKind::Changed => Kind::Changed,
        DifferenceKind::Missing => Kind::Missing,
        DifferenceKind::Extra => Kind::Extra,
    };
    pb::RowDifference {
        rowid: row.rowid,
        kind: kind.into(),
    }
}
