//! Positions in the log, and what a stretch of it says.
//!
//! The log never says what a row became; it says which rows were touched. Between two schema
//! statements the order of touches does not matter, so a stretch of the log is a list of
//! [`Interval`]s with the schema statements between them.

use std::collections::BTreeMap;
use std::fmt;

/// A position in the log: the engine's `change_id`. Zero is the empty log.
///
/// Strictly ascending, with gaps. The heads that a read transaction sees are the only
/// boundaries of transactions; a COMMIT record is not one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(u64);

impl Seq {
    /// The position before the first change.
    pub const ZERO: Self = Self(0);

    /// From a number read from the wire or a file.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// From a column of the log. Negative numbers are never written: `None`.
    pub fn from_sql(value: i64) -> Option<Self> {
        u64::try_from(value).ok().map(Self)
    }

    /// As a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// As a column value. Positions stay below 2^63 because the engine counts in `i64`.
    pub fn to_sql(self) -> i64 {
        i64::try_from(self.0).expect("a seq comes from an i64 column")
    }

    /// The next position.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Table names, folded to lower case, with the sorted distinct row ids touched in each.
pub type Touched = BTreeMap<String, Vec<i64>>;

/// What was touched between two schema statements, or between one and a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// Exclusive start.
    pub from: Seq,
    /// Inclusive end.
    pub to: Seq,
    /// Keys under the names that the tables had at that time.
    pub touched: Touched,
}

impl Interval {
    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.touched.values().map(|keys| keys.len() as u64).sum()
    }
}

/// A schema statement in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ddl {
    /// Its position.
    pub seq: Seq,
    /// The exact text that ran.
    pub sql: String,
}

/// One item of a stretch of the log, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogItem {
    /// Touched rows.
    Interval(Interval),
    /// A schema statement.
    Ddl(Ddl),
}

impl LogItem {
    /// The position at which the item ends.
    pub fn end(&self) -> Seq {
        match self {
            Self::Interval(interval) => interval.to,
            Self::Ddl(ddl) => ddl.seq,
        }
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
