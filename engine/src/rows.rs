//! Rows by their keys, many at a time: how a batch is read on one side and applied on the
//! other.
//!
//! A statement for each row costs more in being started than in what it does. Measured on
//! this engine, per row: a SELECT by key 8 µs, by a joined list of keys 2, by range 0.3; a
//! DELETE by key 5.6 µs, by list 3.4; an INSERT of one row 4.6 µs, of sixteen 2.2. Small
//! lists are the exception, because a list costs half a millisecond by itself.

use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::names;
use crate::schema::TableShape;
use crate::value::{Value, ValueRef};

/// A list of keys is worth its start from this many on.
const DELETE_LIST_MIN: usize = 256;
/// Keys of one list.
const DELETE_LIST_MAX: usize = 4096;
/// Only keys without a gap are deleted as a range.
const DELETE_RANGE: Density = Density {
    gap_max: 1,
    keys_min: 8,
};
/// Rows of one INSERT.
const PUT_ROWS_MAX: usize = 16;
/// Values of one INSERT: tables of many columns take fewer rows.
const PUT_VALUES_MAX: usize = 1024;
/// Bytes that wait for one INSERT; a row larger than that goes alone.
const PUT_BYTES_MAX: usize = 256 << 10;

/// Keys that are handled together.
#[derive(Debug, PartialEq)]
pub(crate) enum Stretch<'a> {
    /// From the first to the last of them.
    Range(&'a [i64]),
    /// Each by itself.
    Scattered(&'a [i64]),
}

/// When keys make a range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Density {
    /// The largest distance from one key to the next.
    pub gap_max: u64,
    /// The fewest keys.
    pub keys_min: usize,
}

/// Rows on their way into a table, which go in together.
pub(crate) struct Puts {
    table: String,
    /// Touched keys that no row has come for yet.
    keys: std::vec::IntoIter<i64>,
    insert_one: String,
    insert_many: String,
    rows_max: usize,
    /// Row id and columns, one row after the other.
    waiting: Vec<Value>,
    waiting_bytes: usize,
    width: usize,
}

impl Puts {
    /// Rows for these keys, ascending, and no others.
    pub fn new(shape: &TableShape, keys: Vec<i64>) -> Self {
        let width = shape.columns.len() + 1;
        let rows_max = (PUT_VALUES_MAX / width).clamp(1, PUT_ROWS_MAX);
        Self {
            table: shape.name.clone(),
            keys: keys.into_iter(),
            insert_one: insert(shape, 1),
            insert_many: insert(shape, rows_max),
            rows_max,
            waiting: Vec::with_capacity(width * rows_max),
            waiting_bytes: 0,
            width,
        }
    }

    /// Takes one more row.
    pub fn put(
        &mut self,
        connection: &mut Connection,
        rowid: i64,
        values: &[ValueRef<'_>],
    ) -> Result<()> {
        // Both ascend, so a row that the log does not name, or that comes twice, is not found.
        if !self.keys.any(|key| key == rowid) {
            return Err(Error::Diverging(format!(
                "row {rowid} of table {}, which the log does not name",
                self.table
            )));
        }
        self.waiting.push(Value::Integer(rowid));
        for value in values {
            let value = value.to_value().ok_or_else(|| {
                Error::Format(format!("text that is not UTF-8 in table {}", self.table))
            })?;
            self.waiting_bytes += value.size_bytes();
            self.waiting.push(value);
        }
        let is_full = self.waiting.len() == self.width * self.rows_max;
        if is_full || self.waiting_bytes > PUT_BYTES_MAX {
            self.flush(connection)?;
        }
        Ok(())
    }

    /// Puts what waits. Plain INSERT: whatever is in the way should not be there.
    pub fn flush(&mut self, connection: &mut Connection) -> Result<()> {
        let all = self.waiting.len() == self.width * self.rows_max;
        let (sql, width) = match all {
            true => (&self.insert_many, self.waiting.len()),
            false => (&self.insert_one, self.width),
        };
        for rows in self.waiting.chunks_exact(width) {
            let expected = (rows.len() / self.width) as i64;
            let changed = run(connection, sql, rows.iter().map(Value::as_ref))?;
            if changed != expected {
                return Err(Error::Diverging(format!(
                    "putting {expected} rows into table {} changed {changed}",
                    self.table
                )));
            }
        }
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }
}

/// Deletes the rows of these ascending keys, where they exist.
pub(crate) fn delete_rows(
    connection: &mut Connection,
    shape: &TableShape,
    keys: &[i64],
) -> Result<()> {
    let (table, rowid) = (shape.quoted_name(), names::quote(&shape.rowid_alias));
    let highest = format!("SELECT max({rowid}) FROM {table}");
    let Some(highest) = connection.query_integer(&highest, &[])? else {
        return Ok(());
    };
    // Keys beyond the last row are new ones: a bulk load deletes nothing.
    let present = keys.partition_point(|key| *key <= highest);
    let delete = |condition: &str| format!("DELETE FROM {table} WHERE {rowid} {condition}");
    for stretch in stretches(&keys[..present], DELETE_RANGE) {
        match stretch {
            Stretch::Range(keys) => {
                let ends = [keys[0], keys[keys.len() - 1]].map(ValueRef::Integer);
                run(connection, &delete("BETWEEN ? AND ?"), ends.into_iter())?;
            }
            Stretch::Scattered(keys) if keys.len() < DELETE_LIST_MIN => {
                let sql = delete("= ?");
                for &key in keys {
                    run(connection, &sql, std::iter::once(ValueRef::Integer(key)))?;
                }
            }
            Stretch::Scattered(keys) => {
                let sql = delete("IN (SELECT value FROM json_each(?))");
                for keys in keys.chunks(DELETE_LIST_MAX) {
                    let list = json_list(keys);
                    let list = std::iter::once(ValueRef::Text(list.as_bytes()));
                    run(connection, &sql, list)?;
                }
            }
        }
    }
    Ok(())
}

/// Cuts ascending keys into ranges and what lies scattered between them, in order.
pub(crate) fn stretches(keys: &[i64], density: Density) -> Vec<Stretch<'_>> {
    let mut stretches = Vec::new();
    let mut scattered_from = 0;
    let mut start = 0;
    while start < keys.len() {
        let mut end = start + 1;
        while end < keys.len() && keys[end].abs_diff(keys[end - 1]) <= density.gap_max {
            end += 1;
        }
        if end - start >= density.keys_min {
            if scattered_from < start {
                stretches.push(Stretch::Scattered(&keys[scattered_from..start]));
            }
            stretches.push(Stretch::Range(&keys[start..end]));
            scattered_from = end;
        }
        start = end;
    }
    if scattered_from < keys.len() {
        stretches.push(Stretch::Scattered(&keys[scattered_from..]));
    }
    stretches
}

/// `[1,2,3]`
pub(crate) fn json_list(keys: &[i64]) -> String {
    let mut list = String::with_capacity(2 + keys.len() * 8);
    for (index, key) in keys.iter().enumerate() {
        list.push(if index == 0 { '[' } else { ',' });
        list.push_str(&key.to_string());
    }
    list.push(']');
    list
}

/// Runs a statement of an apply. Trouble of the machine stays what it is, so that applying
/// again may succeed; anything the statement itself says means that the copies differ.
/// Some errors end the transaction and leave the connection in autocommit, where each later
/// statement would be a commit of its own; so that is looked at after each one.
pub(crate) fn run<'p>(
    connection: &mut Connection,
    sql: &str,
    params: impl Iterator<Item = ValueRef<'p>>,
) -> Result<i64> {
    let changed = connection.run(sql, params, |_| Ok(()));
    let changed = changed.map_err(|error| match error {
        Error::Sql { .. } | Error::TransactionGone { .. } | Error::Refused { .. } => {
            Error::Diverging(format!("{error}, from: {sql:.200}"))
        }
        other => other,
    })?;
    if connection.is_autocommit() {
        return Err(Error::Diverging(format!(
            "the transaction of a batch was ended by: {sql:.200}"
        )));
    }
    Ok(changed)
}

fn insert(shape: &TableShape, rows: usize) -> String {
    let row = format!("(?{})", ", ?".repeat(shape.columns.len()));
    format!(
        "INSERT INTO {}({}, {}) VALUES {}",
        shape.quoted_name(),
        names::quote(&shape.rowid_alias),
        shape.column_list(),
        vec![row.as_str(); rows].join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_keys_form_a_range_and_the_others_a_list() {
        let dense: Vec<i64> = (100..120).collect();
        let mut keys = vec![i64::MIN, 7, 9];
        keys.extend(&dense);
        keys.extend([500, i64::MAX]);
        let density = Density {
            gap_max: 4,
            keys_min: 16,
        };
        let expected = [
            Stretch::Scattered(&keys[..3]),
            Stretch::Range(&dense),
            Stretch::Scattered(&keys[23..]),
        ];
        assert_eq!(stretches(&keys, density), expected);
        assert!(stretches(&[], density).is_empty());
        assert_eq!(json_list(&[i64::MIN, 0]), "[-9223372036854775808,0]");
    }
}
