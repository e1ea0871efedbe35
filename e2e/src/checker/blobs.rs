//! Large values: there or not as their fates say, byte by byte.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::{Fate, Record};
use crate::workload::blobs::{Change, body};

/// What may be stored of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Present,
    Absent,
    Either,
}

pub(super) fn judge(records: &[Record<Change>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("blobs", records);
    let expected = replay(records);
    let ids: Vec<i64> = stored.rows("SELECT id FROM blobs", |row| row.get(0))?;
    report.present = ids.len() as u64;
    for &id in &ids {
        match expected.get(&id) {
            Some(Expected::Present | Expected::Either) => {}
            other => report.problem(format!("value {id} is there, though {other:?}")),
        }
        let sql = format!("SELECT size, body FROM blobs WHERE id = {id}");
        let (size, found): (usize, Vec<u8>) =
            stored.row(&sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
        if found != body(id) || size != found.len() {
            report.problem(format!("value {id} has other bytes"));
        }
    }
    for (id, expected) in expected {
        if expected == Expected::Present && !ids.contains(&id) {
            report.problem(format!("lost although acknowledged: value {id}"));
        }
    }
    Ok(report)
}

fn replay(records: &[Record<Change>]) -> BTreeMap<i64, Expected> {
    let mut values = BTreeMap::new();
    for record in records {
        let (id, done) = match record.op {
            Change::Insert(id) => (id, Expected::Present),
            Change::Delete(id) => (id, Expected::Absent),
        };
        match record.fate {
            Fate::Acknowledged => values.insert(id, done),
            Fate::Indeterminate => values.insert(id, Expected::Either),
            Fate::Failed => None,
        };
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate::{Acknowledged, Failed, Indeterminate};
    use crate::workload::blobs;

    fn wrong(records: &[Record<Change>], stored: &[(i64, Vec<u8>)]) -> u64 {
        let mut statements = blobs::setup();
        for (id, bytes) in stored {
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            let size = bytes.len();
            statements.push(format!("INSERT INTO blobs VALUES ({id}, {size}, x'{hex}')"));
        }
        let stored = Stored::of_statements(&statements).unwrap();
        judge(records, &stored).unwrap().wrong
    }

    #[test]
    fn bytes_must_be_those_of_the_id() {
        let records = [record(Change::Insert(1), Acknowledged, 1)];
        assert_eq!(wrong(&records, &[(1, body(1))]), 0);
        assert_eq!(wrong(&records, &[(1, vec![1, 2])]), 1);
        assert_eq!(wrong(&records, &[]), 1);
    }

    #[test]
    fn deleted_values_are_gone_and_doubtful_ones_are_either() {
        let insert = record(Change::Insert(1), Acknowledged, 1);
        let delete = |fate| [insert.clone(), record(Change::Delete(1), fate, 2)];
        let there = [(1, body(1))];
        assert_eq!(wrong(&delete(Acknowledged), &there), 1);
        assert_eq!(wrong(&delete(Acknowledged), &[]), 0);
        assert_eq!(wrong(&delete(Indeterminate), &there), 0);
        assert_eq!(wrong(&delete(Indeterminate), &[]), 0);
        assert_eq!(wrong(&delete(Failed), &[]), 1);
    }
}
