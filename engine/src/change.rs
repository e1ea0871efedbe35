//! Positions in the log.

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

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
