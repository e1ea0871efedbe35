//! Inserted keys: each there or not as its fate says, with its payload and the id answered.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::Record;
use crate::workload::set::{Insert, payload};

pub(super) fn judge(records: &[Record<Insert>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("set", records);
    let mut items = items(stored)?;
    for record in records {
        let key = record.op.key;
        let found = items.remove(&key);
        report.presence(record.fate, found.is_some(), || format!("key {key}"));
        let Some((id, text)) = found else { continue };
        if text != payload(key) {
            report.problem(format!("key {key} has the payload {text:?}"));
        }
        if record.op.id.is_some_and(|answered| answered != id) {
            report.problem(format!(
                "key {key} has id {id}, but {:?} was answered",
                record.op.id
            ));
        }
    }
    for key in items.keys() {
        report.problem(format!("nobody inserted key {key}"));
    }
    sequence(&mut report, stored)?;
    Ok(report)
}

/// The sequence is never behind the ids given, or an id would be given twice.
fn sequence(report: &mut Report, stored: &Stored) -> Result<()> {
    let highest: i64 = stored.row("SELECT coalesce(max(id), 0) FROM set_items", |r| r.get(0))?;
    let sql = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'set_items'";
    let sequence: i64 = stored.row(sql, |row| row.get(0))?;
    if sequence < highest {
        report.problem(format!(
            "the sequence is {sequence}, ids go up to {highest}"
        ));
    }
    Ok(())
}

fn items(stored: &Stored) -> Result<BTreeMap<i64, (i64, String)>> {
    let rows = stored.rows("SELECT key, id, payload FROM set_items", |row| {
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
    })?;
    Ok(rows.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate::{Acknowledged, Failed, Indeterminate};
    use crate::workload::set;

    fn database(keys: &[i64]) -> Stored {
        let mut statements = set::setup();
        for &key in keys {
            let payload = payload(key);
            statements.push(format!(
                "INSERT INTO set_items (key, payload) VALUES ({key}, '{payload}')"
            ));
        }
        Stored::of_statements(&statements).unwrap()
    }

    fn insert(key: i64, id: Option<i64>) -> Insert {
        Insert { key, id }
    }

    #[test]
    fn acknowledged_keys_are_there_and_failed_ones_are_not() {
        let records = [
            record(insert(7, Some(1)), Acknowledged, 1),
            record(insert(8, None), Failed, 2),
            record(insert(9, None), Indeterminate, 3),
        ];
        assert_eq!(judge(&records, &database(&[7])).unwrap().wrong, 0);
        assert_eq!(judge(&records, &database(&[7, 9])).unwrap().wrong, 0);
        assert_eq!(judge(&records, &database(&[9])).unwrap().wrong, 1);
        assert_eq!(judge(&records, &database(&[7, 8])).unwrap().wrong, 1);
        assert_eq!(judge(&records, &database(&[7, 5])).unwrap().wrong, 1);
    }

    #[test]
    fn an_id_other_than_the_answered_one_is_a_problem() {
        let records = [record(insert(7, Some(2)), Acknowledged, 1)];
        assert_eq!(judge(&records, &database(&[7])).unwrap().wrong, 1);
    }
}
