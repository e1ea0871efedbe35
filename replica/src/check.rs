//! The words in which both sides speak of what they compared.

use tidegate_engine::Seq;
use tidegate_engine::digest::KeyRange;

/// How one step compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The same on both sides.
    Equal,
    /// Not the same.
    Unequal,
    /// One side could not compute its part.
    Failed,
    /// A change of the schema spoiled the view: the step does not count and is asked again.
    Again,
}

/// A row that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowDifference {
    /// Its rowid.
    pub rowid: i64,
    /// In which way.
    pub kind: DifferenceKind,
}

/// In which way a row differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Both sides have it, with other content.
    Changed,
    /// Only the source has it.
    Missing,
    /// Only the follower has it.
    Extra,
}

impl DifferenceKind {
    /// One word for it, from the follower's side.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Extra => "extra",
        }
    }
}

/// A differing row with its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The table.
    pub table: String,
    /// The row.
    pub row: RowDifference,
}

/// A range, or the schema, that differed at a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnequalRange {
    /// The table; empty for schema and final values.
    pub table: String,
    /// The range.
    pub range: KeyRange,
    /// Position at which both sides were compared.
    pub seq: Seq,
    /// Rows on the source's side, and on the follower's.
    pub rows: (u64, u64),
    /// For people.
    pub text: String,
}
