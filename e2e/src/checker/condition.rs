//! What holds in every committed state, checkable by one read on a live node.
//!
//! One SELECT is one snapshot, so the answer is of one committed state. On a replica it is
//! what "ready" means: the state it shows is one that the primary was in.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use crate::client::as_integer;
use crate::workload::bank;

/// A read and what must be true of its result.
#[derive(Debug, Clone, Copy)]
pub struct Condition;

impl Condition {
    /// The read.
    pub const SQL: &str = "SELECT \
        (SELECT count(*) FROM bank_accounts), (SELECT sum(balance) FROM bank_accounts), \
        (SELECT min(balance) FROM bank_accounts), \
        (SELECT count(*) FROM bank_transfers), (SELECT sum(transfers) FROM bank_counter), \
        (SELECT count(*) FROM wide_rows), (SELECT sum(members) FROM wide_groups), \
        (SELECT sum(value) FROM wide_rows), (SELECT sum(value * members) FROM wide_groups)";

    /// Checks the one row that the read gave.
    pub fn check(rows: &[Vec<Value>]) -> Result<()> {
        let [row] = rows else {
            bail!("{} rows instead of one", rows.len());
        };
        let numbers: Vec<_> = row.iter().map(|v| as_integer(v).unwrap_or(0)).collect();
        Self::check_numbers(&numbers)
    }

    /// Checks the numbers of that row, NULL taken for 0.
    pub fn check_numbers(numbers: &[i64]) -> Result<()> {
        let &[
            accounts,
            sum,
            least,
            transfers,
            counted,
            rows,
            members,
            values,
            expected,
        ] = numbers
        else {
            bail!("{} columns instead of nine", numbers.len());
        };
        ensure!(
            accounts == bank::ACCOUNTS && sum == bank::ACCOUNTS * bank::BALANCE,
            "{accounts} accounts hold {sum}, not {} holding {}",
            bank::ACCOUNTS,
            bank::ACCOUNTS * bank::BALANCE
        );
        ensure!(least >= 0, "an account holds {least}");
        ensure!(
            transfers == counted,
            "{transfers} transfers are stored and {counted} counted"
        );
        ensure!(
            rows == members && values == expected,
            "groups should have {members} rows worth {expected} but have {rows} worth {values}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::Stored;
    use crate::workload;

    fn check(more: &[&str]) -> Result<()> {
        let mut statements = workload::setup();
        statements.extend(more.iter().map(|&s| s.to_owned()));
        let numbers = Stored::of_statements(&statements)?.row(Condition::SQL, |row| {
            (0..9)
                .map(|i| Ok(row.get::<_, Option<i64>>(i)?.unwrap_or(0)))
                .collect::<rusqlite::Result<Vec<_>>>()
        })?;
        Condition::check_numbers(&numbers)
    }

    #[test]
    fn holds_at_first_and_after_a_whole_transfer() {
        check(&[]).unwrap();
        check(&[
            "UPDATE bank_accounts SET balance = balance - 5 WHERE id = 1",
            "UPDATE bank_accounts SET balance = balance + 5 WHERE id = 2",
            "INSERT INTO bank_transfers VALUES (1, 1, 2, 5)",
        ])
        .unwrap();
    }

    #[test]
    fn breaks_on_half_a_transfer_and_on_a_trigger_that_fires_twice() {
        assert!(check(&["UPDATE bank_accounts SET balance = balance - 5 WHERE id = 1"]).is_err());
        assert!(check(&["UPDATE bank_counter SET transfers = 1"]).is_err());
        assert!(check(&["DELETE FROM bank_accounts WHERE id = 1"]).is_err());
        assert!(check(&["INSERT INTO wide_rows VALUES (1, 1, 0, NULL)"]).is_err());
    }
}
