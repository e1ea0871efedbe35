//! Transfers: stored ones are those that may be, and balances are their sum.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Report, Stored};
use crate::history::Record;
use crate::workload::bank::{ACCOUNTS, BALANCE, Transfer};

pub(super) fn judge(records: &[Record<Transfer>], stored: &Stored) -> Result<Report> {
    let mut report = Report::new("bank", records);
    let mut transfers = stored_transfers(stored)?;
    let mut expected: BTreeMap<_, _> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
    for transfer in transfers.values() {
        *expected.entry(transfer.source).or_default() -= transfer.amount;
        *expected.entry(transfer.target).or_default() += transfer.amount;
    }
    for record in records {
        let found = transfers.remove(&record.op.id);
        report.presence(record.fate, found.is_some(), || format!("{:?}", record.op));
        if let Some(found) = found.filter(|found| *found != record.op) {
            report.problem(format!("{:?} is stored as {found:?}", record.op));
        }
    }
    for transfer in transfers.values() {
        report.problem(format!("nobody made {transfer:?}"));
    }
    let balances = balances(stored)?;
    if balances != expected {
        report.problem(format!(
            "balances {balances:?} are not what the transfers make: {expected:?}"
        ));
    }
    Ok(report)
}

fn stored_transfers(stored: &Stored) -> Result<BTreeMap<i64, Transfer>> {
    let sql = "SELECT id, source, target, amount FROM bank_transfers";
    let rows = stored.rows(sql, |row| {
        Ok(Transfer {
            id: row.get(0)?,
            source: row.get(1)?,
            target: row.get(2)?,
            amount: row.get(3)?,
        })
    })?;
    Ok(rows.into_iter().map(|t| (t.id, t)).collect())
}

fn balances(stored: &Stored) -> Result<BTreeMap<i64, i64>> {
    let sql = "SELECT id, balance FROM bank_accounts";
    let rows = stored.rows(sql, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;
    use crate::history::Fate;
    use crate::workload::bank;

    const TRANSFER: Transfer = Transfer {
        id: 9,
        source: 1,
        target: 2,
        amount: 5,
    };

    fn database(happened: bool) -> Stored {
        let mut statements = bank::setup();
        if happened {
            statements.extend([
                "UPDATE bank_accounts SET balance = balance - 5 WHERE id = 1".to_owned(),
                "UPDATE bank_accounts SET balance = balance + 5 WHERE id = 2".to_owned(),
                "INSERT INTO bank_transfers VALUES (9, 1, 2, 5)".to_owned(),
            ]);
        }
        Stored::of_statements(&statements).unwrap()
    }

    fn wrong(fate: Fate, happened: bool) -> u64 {
        let records = [record(TRANSFER, fate, 1)];
        judge(&records, &database(happened)).unwrap().wrong
    }

    #[test]
    fn fate_decides_what_may_be_stored() {
        assert_eq!(wrong(Fate::Acknowledged, true), 0);
        assert_eq!(wrong(Fate::Acknowledged, false), 1);
        assert_eq!(wrong(Fate::Failed, false), 0);
        assert_eq!(wrong(Fate::Failed, true), 1);
        assert_eq!(wrong(Fate::Indeterminate, true), 0);
        assert_eq!(wrong(Fate::Indeterminate, false), 0);
    }

    #[test]
    fn a_transfer_that_nobody_made_is_a_problem() {
        assert_eq!(judge(&[], &database(true)).unwrap().wrong, 1);
    }
}
