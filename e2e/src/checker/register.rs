//! Registers: the last value is one that could have been written last.
//!
//! A write is certainly not the last one when another acknowledged write to the same register
//! started after it had ended. A write of unknown fate has no end.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::{Fate, Record};
use crate::workload::register::{REGISTERS, Write};

pub(super) fn judge(records: &[Record<Write>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("register", records);
    let sql = "SELECT id, value, writes FROM registers";
    let rows = stored.rows(sql, |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    let stored: BTreeMap<i64, (i64, u64)> = rows.into_iter().collect();
    for register in 0..REGISTERS {
        let own: Vec<_> = records
            .iter()
            .filter(|r| r.op.register == register)
            .collect();
        let &(value, writes) = stored.get(&register).unwrap_or(&(-1, 0));
        report.present += writes;
        if let Err(why) = judge_one(&own, value, writes) {
            report.problem(format!("register {register}: {why}"));
        }
    }
    Ok(report)
}

fn judge_one(records: &[&Record<Write>], value: i64, writes: u64) -> Result<(), String> {
    let of = |fate| records.iter().filter(move |r| r.fate == fate);
    let acknowledged = of(Fate::Acknowledged).count() as u64;
    let possible = acknowledged + of(Fate::Indeterminate).count() as u64;
    if !(acknowledged..=possible).contains(&writes) {
        return Err(format!(
            "{writes} writes are counted, {acknowledged} acknowledged, {possible} possible"
        ));
    }
    if value == 0 {
        return if acknowledged == 0 {
            Ok(())
        } else {
            Err("the first value is back".to_owned())
        };
    }
    let Some(last) = records.iter().find(|r| r.op.value == value) else {
        return Err(format!("nobody wrote {value}"));
    };
    if last.fate == Fate::Failed {
        return Err(format!("{value} is there although its write failed"));
    }
    let later = of(Fate::Acknowledged).find(|r| r.started > last.ended);
    match later {
        Some(later) if last.fate == Fate::Acknowledged => Err(format!(
            "{value} is there, although {} was written later",
            later.op.value
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate::{Acknowledged, Failed, Indeterminate};

    fn write(value: i64) -> Write {
        Write { register: 0, value }
    }

    #[test]
    fn the_last_acknowledged_write_wins() {
        let (a, b) = (
            record(write(1), Acknowledged, 1),
            record(write(2), Acknowledged, 2),
        );
        assert!(judge_one(&[&a, &b], 2, 2).is_ok());
        assert!(judge_one(&[&a, &b], 1, 2).is_err());
        assert!(judge_one(&[&a, &b], 2, 1).is_err());
        assert!(judge_one(&[&a, &b], 0, 2).is_err());
        assert!(judge_one(&[&a, &b], 3, 2).is_err());
    }

    #[test]
    fn concurrent_and_unknown_writes_may_win() {
        let a = record(write(1), Acknowledged, 1);
        let mut b = record(write(2), Acknowledged, 1);
        assert!(judge_one(&[&a, &b], 1, 2).is_ok());
        b = record(write(2), Indeterminate, 0);
        assert!(judge_one(&[&a, &b], 2, 2).is_ok());
        assert!(judge_one(&[&a, &b], 1, 1).is_ok());
        b = record(write(2), Failed, 2);
        assert!(judge_one(&[&a, &b], 2, 2).is_err());
    }
}
