//! Churned rows: exactly those that the owner's changes leave.
//!
//! A change of unknown fate leaves two possibilities for the rows it touched, and its owner
//! never touched them again: both sides of it may be stored, a mixture may not.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::{Fate, Record};
use crate::workload::churn::Change;

type Rows = BTreeMap<i64, String>;

pub(super) fn judge(records: &[Record<Change>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("churn", records);
    let mut found: Rows = stored
        .rows("SELECT id, name FROM churn", |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .into_iter()
        .collect();
    report.present = found.len() as u64;
    let (certain, doubtful) = replay(records);
    for (id, name) in certain {
        match found.remove(&id) {
            Some(stored) if stored == name => {}
            other => report.problem(format!("row {id} should be {name:?} and is {other:?}")),
        }
    }
    for change in doubtful {
        doubt(&mut report, change, &mut found);
    }
    for (id, name) in found {
        report.problem(format!("row {id} {name:?} should not be there"));
    }
    Ok(report)
}

/// Rows that must be there, and the changes of unknown fate.
fn replay(records: &[Record<Change>]) -> (Rows, Vec<&Change>) {
    let mut rows = Rows::new();
    let mut doubtful = Vec::new();
    for record in records {
        if record.fate == Fate::Failed {
            continue;
        }
        for (id, _) in &record.op.before {
            rows.remove(id);
        }
        if record.fate == Fate::Acknowledged {
            rows.extend(record.op.after.iter().cloned());
        } else {
            doubtful.push(&record.op);
        }
    }
    (rows, doubtful)
}

fn doubt(report: &mut Report, change: &Change, found: &mut Rows) {
    let ids = change.before.iter().chain(&change.after).map(|(id, _)| *id);
    let stored: Rows = ids.filter_map(|id| found.remove_entry(&id)).collect();
    let before: Rows = change.before.iter().cloned().collect();
    let after: Rows = change.after.iter().cloned().collect();
    if stored != before && stored != after {
        report.problem(format!("half a change: {change:?} left {stored:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate::{Acknowledged, Failed, Indeterminate};
    use crate::workload::churn;

    fn change(before: &[(i64, &str)], after: &[(i64, &str)]) -> Change {
        let rows = |rows: &[(i64, &str)]| rows.iter().map(|&(i, n)| (i, n.to_owned())).collect();
        Change {
            owner: 0,
            before: rows(before),
            after: rows(after),
        }
    }

    fn wrong(records: &[Record<Change>], rows: &[(i64, &str)]) -> u64 {
        let mut statements = churn::setup();
        for (id, name) in rows {
            statements.push(format!(
                "INSERT INTO churn (id, owner, name) VALUES ({id}, 0, '{name}')"
            ));
        }
        let stored = Stored::of_statements(&statements).unwrap();
        judge(records, &stored).unwrap().wrong
    }

    #[test]
    fn acknowledged_changes_are_followed_and_failed_ones_ignored() {
        let records = [
            record(change(&[], &[(1, "a")]), Acknowledged, 1),
            record(change(&[], &[(2, "b")]), Acknowledged, 2),
            record(
                change(&[(1, "a"), (2, "b")], &[(1, "b"), (2, "a")]),
                Acknowledged,
                3,
            ),
            record(change(&[(1, "b")], &[]), Failed, 4),
        ];
        assert_eq!(wrong(&records, &[(1, "b"), (2, "a")]), 0);
        assert_eq!(wrong(&records, &[(1, "b")]), 1);
        assert_eq!(wrong(&records, &[(1, "a"), (2, "b")]), 2);
        assert_eq!(wrong(&records, &[(1, "b"), (2, "a"), (3, "c")]), 1);
    }

    #[test]
    fn an_unknown_change_is_there_wholly_or_not_at_all() {
        let swap = change(&[(1, "a"), (2, "b")], &[(1, "b"), (2, "a")]);
        let records = [
            record(change(&[], &[(1, "a")]), Acknowledged, 1),
            record(change(&[], &[(2, "b")]), Acknowledged, 2),
            record(swap, Indeterminate, 3),
        ];
        assert_eq!(wrong(&records, &[(1, "a"), (2, "b")]), 0);
        assert_eq!(wrong(&records, &[(1, "b"), (2, "a")]), 0);
        assert_eq!(wrong(&records, &[(1, "a")]), 1);
    }
}
