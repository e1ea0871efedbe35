//! Groups: all rows or none, all of them with the same value.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::{Fate, Record};
use crate::workload::wide::Change;

/// Rows and value of a group, `None` when it is not there.
type State = Option<(i64, i64)>;

pub(super) fn judge(records: &[Record<Change>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("wide", records);
    let declared = groups(stored, "SELECT grp, members, value, value FROM wide_groups")?;
    let found = groups(
        stored,
        "SELECT grp, count(*), min(value), max(value) FROM wide_rows GROUP BY grp",
    )?;
    report.present = found.len() as u64;
    if declared != found {
        report.problem(format!("groups {declared:?} have the rows {found:?}"));
    }
    let possible = replay(records);
    for (group, states) in &possible {
        let state = found.get(group).map(|&(rows, low, _)| (rows, low));
        if !states.contains(&state) {
            report.problem(format!("group {group} is {state:?}, not one of {states:?}"));
        }
    }
    for (group, (_, low, high)) in &found {
        if low != high {
            report.problem(format!("group {group} holds values from {low} to {high}"));
        }
        if !possible.contains_key(group) {
            report.problem(format!("nobody made group {group}"));
        }
    }
    Ok(report)
}

fn replay(records: &[Record<Change>]) -> BTreeMap<i64, Vec<State>> {
    let mut groups = BTreeMap::new();
    for record in records {
        let Change {
            group,
            before,
            after,
        } = record.op;
        let states = match record.fate {
            Fate::Acknowledged => vec![after],
            Fate::Indeterminate => vec![before, after],
            Fate::Failed => vec![before],
        };
        groups.insert(group, states);
    }
    groups
}

fn groups(stored: &Stored, sql: &str) -> Result<BTreeMap<i64, (i64, i64, i64)>> {
    let rows = stored.rows(sql, |row| {
        Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?)))
    })?;
    Ok(rows.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate::{Acknowledged, Indeterminate};
    use crate::workload::wide;

    fn wrong(records: &[Record<Change>], more: &[&str]) -> u64 {
        let mut statements = wide::setup();
        statements.extend(more.iter().map(|&s| s.to_owned()));
        let stored = Stored::of_statements(&statements).unwrap();
        judge(records, &stored).unwrap().wrong
    }

    #[test]
    fn a_group_is_there_with_all_its_rows() {
        let change = Change {
            group: 1,
            before: None,
            after: Some((2, 0)),
        };
        let rows = "INSERT INTO wide_rows (grp, value) VALUES (1, 0), (1, 0)";
        let group = "INSERT INTO wide_groups VALUES (1, 2, 0)";
        let acknowledged = [record(change, Acknowledged, 1)];
        assert_eq!(wrong(&acknowledged, &[rows, group]), 0);
        assert_eq!(wrong(&acknowledged, &[]), 1);
        assert_eq!(wrong(&acknowledged, &[rows]), 1);
        assert_eq!(wrong(&[record(change, Indeterminate, 1)], &[]), 0);
        assert_eq!(wrong(&[], &[rows, group]), 1);
    }
}
