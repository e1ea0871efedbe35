//! Row digests: what two nodes compare instead of rows.
//!
//! A row's hash covers the table's name, the rowid and every stored column as a type tag and
//! its exact bytes, so that what SQL's `=` forgives (`1` and `1.0`, `-0.0` and `0.0`, text
//! and blob of the same bytes) is a difference here. The layout is drawn in
//! `docs/protocol.md`, section "Row digest"; it is part of the protocol.
//!
//! The hashes of a range are added up (modulo 2^128), with their count beside the sum. A sum
//! does not depend on the order of rows, so a range may be split and its parts added, and
//! a scan may take whatever order is cheap. The hash guards against faults, not against
//! somebody who constructs collisions: both nodes are ours.
//!
//! Every scan says NOT INDEXED: an index that has lost an entry must not hide the row from
//! the digest. Indexes themselves are checked by [`crate::integrity`].
//!
//! A table is covered by ranges of rowids, open at both ends, so that every row that could
//! ever exist is in exactly one. The highest rowid is taken once, at the start, and the part
//! behind it is checked first: a table that grows during a pass cannot make it endless.

use std::ops::ControlFlow;

use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};
use crate::names;
use crate::schema::{TableShape, table_shape};
use crate::value::{Value, ValueRef};
use crate::view::ReadView;

/// A range of rowids: `after < rowid <= up_to`; `None` leaves that end open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// Rows up to and including this one are outside.
    pub after: Option<i64>,
    /// The last rowid that is inside.
    pub up_to: Option<i64>,
}

/// The rows of a range, counted and added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RangeDigest {
    /// Number of rows.
    pub rows: u64,
    /// Sum of the row hashes, modulo 2^128.
    pub hash: u128,
}

/// How large one range may become. A scan ends after the row that passes either bound, so
/// that its read transaction stays short.
#[derive(Debug, Clone, Copy)]
pub struct RangeLimits {
    /// Rows in a range.
    pub rows_max: u64,
    /// Bytes of row content in a range.
    pub bytes_max: u64,
}

impl Default for RangeLimits {
    /// About 50 ms of scanning, in narrow rows or in wide ones.
    fn default() -> Self {
        Self {
            rows_max: 65_536,
            bytes_max: 16 << 20,
        }
    }
}

impl KeyRange {
    /// Every rowid there can be.
    pub const ALL: Self = Self {
        after: None,
        up_to: None,
    };

    /// True when the rowid is inside.
    pub fn contains(self, rowid: i64) -> bool {
        self.after.is_none_or(|after| rowid > after) && self.up_to.is_none_or(|end| rowid <= end)
    }
}

impl RangeDigest {
    /// The digest of two ranges that share no row.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rows: self.rows + other.rows,
            hash: self.hash.wrapping_add(other.hash),
        }
    }
}

/// Counts and digests the rows of a range.
pub fn digest_range(view: &mut ReadView<'_>, table: &str, range: KeyRange) -> Result<RangeDigest> {
    let shape = shape_in(view, table)?;
    let mut hasher = RowHasher::new(&shape);
    let mut digest = RangeDigest::default();
    let (sql, params) = scan(&shape, range, "");
    view.query(&sql, &params, |row| {
        let hash = hasher.hash(row.values())?;
        digest = digest.plus(RangeDigest { rows: 1, hash });
        Ok(())
    })?;
    Ok(digest)
}

/// Digests the next range of a walk in the order of rowids: it begins behind `after`, ends
/// where `limits` say, and never passes `last` (see [`last_rowid`]). The walk is over when
/// the range's `up_to` is `last`.
pub fn digest_next(
    view: &mut ReadView<'_>,
    table: &str,
    after: Option<i64>,
    last: i64,
    limits: RangeLimits,
) -> Result<(KeyRange, RangeDigest)> {
    let shape = shape_in(view, table)?;
    let mut hasher = RowHasher::new(&shape);
    let mut digest = RangeDigest::default();
    let mut end = KeyRange {
        after,
        up_to: Some(last),
    };
    let (sql, params) = scan(&shape, end, &order_by_rowid(&shape));
    let mut bytes = 0;
    view.query_until(&sql, &params, |row| {
        let hash = hasher.hash(row.values())?;
        digest = digest.plus(RangeDigest { rows: 1, hash });
        bytes += hasher.row_bytes();
        if digest.rows < limits.rows_max && bytes < limits.bytes_max {
            return Ok(ControlFlow::Continue(()));
        }
        end.up_to = Some(row.integer(0)?);
        Ok(ControlFlow::Break(()))
    })?;
    Ok((end, digest))
}

/// The hash of each row in a range, in the order of rowids, at most `limit`: for finding
/// the rows that differ once a range does.
pub fn digest_rows(
    view: &mut ReadView<'_>,
    table: &str,
    range: KeyRange,
    limit: usize,
) -> Result<Vec<(i64, u128)>> {
    let shape = shape_in(view, table)?;
    let mut hasher = RowHasher::new(&shape);
    let mut rows = Vec::new();
    let tail = format!("{} LIMIT {limit}", order_by_rowid(&shape));
    let (sql, params) = scan(&shape, range, &tail);
    view.query(&sql, &params, |row| {
        let hash = hasher.hash(row.values())?;
        rows.push((row.integer(0)?, hash));
        Ok(())
    })?;
    Ok(rows)
}

/// The highest rowid, `None` for an empty table. A pass takes it once and checks the range
/// behind it first.
pub fn last_rowid(view: &mut ReadView<'_>, table: &str) -> Result<Option<i64>> {
    let shape = shape_in(view, table)?;
    let alias = names::quote(&shape.rowid_alias);
    let sql = format!(
        "SELECT max({alias}) FROM {} NOT INDEXED",
        shape.quoted_name()
    );
    let mut last = None;
    view.query(&sql, &[], |row| {
        last = row.get(0).as_integer();
        Ok(())
    })?;
    Ok(last)
}

/// Cuts off the next range of about `rows_target` rows without reading them; the last range
/// of a table is open at its end.
pub fn cut(
    view: &mut ReadView<'_>,
    table: &str,
    after: Option<i64>,
    rows_target: u64,
) -> Result<KeyRange> {
    let shape = shape_in(view, table)?;
    let open = KeyRange { after, up_to: None };
    let alias = names::quote(&shape.rowid_alias);
    let (condition, params) = bounds(&alias, open);
    let sql = format!(
        "SELECT {alias} FROM {} NOT INDEXED{condition} ORDER BY {alias} LIMIT 1 OFFSET {}",
        shape.quoted_name(),
        rows_target.saturating_sub(1)
    );
    let mut up_to = None;
    view.query(&sql, &params, |row| {
        up_to = Some(row.integer(0)?);
        Ok(())
    })?;
    Ok(KeyRange { after, up_to })
}

/// Hashes rows of one table: the rowid first, then the stored columns.
pub struct RowHasher {
    /// The prefix all rows of the table share, then the row being hashed.
    buffer: Vec<u8>,
    prefix_len: usize,
    columns: usize,
}

impl RowHasher {
    /// For a table; the row layout is drawn in `docs/protocol.md`.
    pub fn new(shape: &TableShape) -> Self {
        let mut buffer = Vec::with_capacity(1024);
        put_bytes(&mut buffer, shape.name.as_bytes());
        Self {
            prefix_len: buffer.len(),
            buffer,
            columns: shape.columns.len(),
        }
    }

    /// The hash of a row given as its rowid and then its columns.
    pub fn hash<'v>(&mut self, values: impl Iterator<Item = ValueRef<'v>>) -> Result<u128> {
        self.buffer.truncate(self.prefix_len);
        let mut count = 0;
        for value in values {
            put_value(&mut self.buffer, value);
            count += 1;
        }
        if count != self.columns + 1 {
            return Err(Error::Corrupt(format!(
                "a row of {count} values in a table of {} columns",
                self.columns
            )));
        }
        Ok(xxh3_128(&self.buffer))
    }

    /// Bytes of the row hashed last.
    fn row_bytes(&self) -> u64 {
        (self.buffer.len() - self.prefix_len) as u64
    }
}

fn shape_in(view: &mut ReadView<'_>, table: &str) -> Result<TableShape> {
    table_shape(view, table)?.ok_or_else(|| Error::Sql {
        code: "SQLITE_ERROR",
        message: format!("no such table: {table}"),
    })
}

fn scan(shape: &TableShape, range: KeyRange, tail: &str) -> (String, Vec<Value>) {
    let alias = names::quote(&shape.rowid_alias);
    let (condition, params) = bounds(&alias, range);
    let sql = format!(
        "SELECT {alias}, {} FROM {} NOT INDEXED{condition}{tail}",
        shape.column_list(),
        shape.quoted_name()
    );
    (sql, params)
}

fn order_by_rowid(shape: &TableShape) -> String {
    format!(" ORDER BY {}", names::quote(&shape.rowid_alias))
}

fn bounds(alias: &str, range: KeyRange) -> (String, Vec<Value>) {
    let condition = match (range.after, range.up_to) {
        (None, None) => String::new(),
        (Some(_), None) => format!(" WHERE {alias} > ?"),
        (None, Some(_)) => format!(" WHERE {alias} <= ?"),
        (Some(_), Some(_)) => format!(" WHERE {alias} > ? AND {alias} <= ?"),
    };
    let ends = [range.after, range.up_to];
    let params = ends.into_iter().flatten().map(Value::Integer).collect();
    (condition, params)
}

/// Tag 0 NULL, 1 integer, 2 real, 3 text, 4 blob; numbers as 8 bytes, little endian.
#[inline]
fn put_value(buffer: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => buffer.push(0),
        ValueRef::Integer(i) => put_number(buffer, 1, i.to_le_bytes()),
        ValueRef::Real(r) => put_number(buffer, 2, r.to_bits().to_le_bytes()),
        ValueRef::Text(bytes) => {
            buffer.push(3);
            put_bytes(buffer, bytes);
        }
        ValueRef::Blob(bytes) => {
            buffer.push(4);
            put_bytes(buffer, bytes);
        }
    }
}

#[inline]
fn put_number(buffer: &mut Vec<u8>, tag: u8, number: [u8; 8]) {
    let mut tagged = [tag; 9];
    tagged[1..].copy_from_slice(&number);
    buffer.extend_from_slice(&tagged);
}

#[inline]
fn put_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    buffer.extend_from_slice(bytes);
}
