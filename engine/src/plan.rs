//! The planner: which rows leave before the schema statements of a batch, and which are put
//! after them.
//!
//! The log names rows as they were named when they were touched. A copy at P knows tables by
//! their names at P, and the rows a batch carries are named as at H, so keys are mapped both
//! ways. What is followed is a table's **incarnation**, not its name: `t` can be renamed to
//! `u` and a new `t` be created, and then the two are different tables although one name
//! appears twice. Dropping ends an incarnation; its rows need no put. Creating begins one; it
//! has no rows at P to delete.
//!
//! Pure: no I/O. The source uses it to know what to read, the applier to know what to
//! delete; both from the same items, so they cannot disagree.

use std::collections::HashMap;

use crate::change::{LogItem, Touched};
use crate::ddl::DdlEffect;
use crate::error::{Error, Result};

/// What to do with the touched keys of a stretch of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys under the names their tables have at the start.
    pub deletes: Touched,
    /// Keys under the names their tables have at the end.
    pub puts: Touched,
    /// True when a schema statement lies between.
    pub has_ddl: bool,
}

/// Plans the items of a stretch of the log, in order.
pub fn plan(items: &[LogItem]) -> Result<Plan> {
    let mut tables = Tables::default();
    let mut has_ddl = false;
    for item in items {
        match item {
            LogItem::Interval(interval) => {
                for (name, keys) in &interval.touched {
                    tables.touch(name, keys)?;
                }
            }
            LogItem::Ddl(ddl) => {
                has_ddl = true;
                tables.change(&DdlEffect::of(&ddl.sql)?, &ddl.sql)?;
            }
        }
    }
    Ok(tables.into_plan(has_ddl))
}

#[derive(Default)]
struct Tables {
    incarnations: Vec<Incarnation>,
    /// Which incarnation bears a name now; `None` when the name is known to be free.
    named: HashMap<String, Option<usize>>,
}

struct Incarnation {
    at_start: Option<String>,
    at_end: Option<String>,
    keys: Vec<i64>,
    lists: u32,
}

impl Tables {
    fn touch(&mut self, name: &str, keys: &[i64]) -> Result<()> {
        let index = self.find(name)?;
        let incarnation = &mut self.incarnations[index];
        incarnation.keys.extend_from_slice(keys);
        incarnation.lists += 1;
        Ok(())
    }

    fn change(&mut self, effect: &DdlEffect, sql: &str) -> Result<()> {
        match effect {
            DdlEffect::CreateTable(name) => {
                if matches!(self.named.get(name), Some(Some(_))) {
                    return Err(Error::Corrupt(format!(
                        "the log creates table {name} although it exists"
                    )));
                }
                let index = self.add(None, Some(name.clone()));
                self.named.insert(name.clone(), Some(index));
            }
            DdlEffect::DropTable(name) => {
                let index = self.find(name)?;
                self.incarnations[index].at_end = None;
                self.named.insert(name.clone(), None);
            }
            DdlEffect::RenameTable { from, to } => {
                let index = self.find(from)?;
                self.incarnations[index].at_end = Some(to.clone());
                self.named.insert(from.clone(), None);
                self.named.insert(to.clone(), Some(index));
            }
            DdlEffect::Other => {}
            DdlEffect::CreateTableAs(_) | DdlEffect::Trigger => {
                return Err(Error::Corrupt(format!(
                    "the log holds a statement that is never logged: {sql}"
                )));
            }
        }
        Ok(())
    }

    /// The incarnation that bears the name now. A name not met before belongs to a table
    /// that was there at the start, under this very name.
    fn find(&mut self, name: &str) -> Result<usize> {
        match self.named.get(name) {
            Some(Some(index)) => Ok(*index),
            Some(None) => Err(Error::Corrupt(format!(
                "the log names table {name} after it was dropped or renamed"
            ))),
            None => {
                let index = self.add(Some(name.to_owned()), Some(name.to_owned()));
                self.named.insert(name.to_owned(), Some(index));
                Ok(index)
            }
        }
    }

    fn add(&mut self, at_start: Option<String>, at_end: Option<String>) -> usize {
        self.incarnations.push(Incarnation {
            at_start,
            at_end,
            keys: Vec::new(),
            lists: 0,
        });
        self.incarnations.len() - 1
    }

    fn into_plan(self, has_ddl: bool) -> Plan {
        let mut plan = Plan {
            has_ddl,
            ..Plan::default()
        };
        for mut incarnation in self.incarnations {
            if incarnation.lists > 1 {
                incarnation.keys.sort_unstable();
                incarnation.keys.dedup();
            }
            if incarnation.keys.is_empty() {
                continue;
            }
            if let Some(name) = incarnation.at_start {
                plan.deletes.insert(name, incarnation.keys.clone());
            }
            if let Some(name) = incarnation.at_end {
                plan.puts.insert(name, incarnation.keys);
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Ddl, Interval, Seq};

    /// `"t:5,6"` touches rows; anything else is a schema statement.
    fn items(script: &[&str]) -> Vec<LogItem> {
        let mut seq = Seq::ZERO;
        script
            .iter()
            .map(|line| {
                let from = seq;
                seq = seq.next();
                match line.split_once(':') {
                    Some((table, keys)) => LogItem::Interval(Interval {
                        from,
                        to: seq,
                        touched: Touched::from([(table.to_owned(), numbers(keys))]),
                    }),
                    None => LogItem::Ddl(Ddl {
                        seq,
                        sql: (*line).to_owned(),
                    }),
                }
            })
            .collect()
    }

    fn numbers(list: &str) -> Vec<i64> {
        list.split(',').map(|n| n.parse().unwrap()).collect()
    }

    fn touched(entries: &[(&str, &str)]) -> Touched {
        let entry = |(table, keys): &(&str, &str)| ((*table).to_owned(), numbers(keys));
        entries.iter().map(entry).collect()
    }

    fn expect(script: &[&str], deletes: &[(&str, &str)], puts: &[(&str, &str)]) {
        let plan = plan(&items(script)).unwrap();
        assert_eq!(plan.deletes, touched(deletes), "deletes of {script:?}");
        assert_eq!(plan.puts, touched(puts), "puts of {script:?}");
    }

    #[test]
    fn without_schema_changes_both_sides_are_what_was_touched() {
        expect(&["t:1,2", "t:2,3"], &[("t", "1,2,3")], &[("t", "1,2,3")]);
    }

    #[test]
    fn a_rename_and_a_new_table_of_the_old_name_are_two_tables() {
        let script = [
            "t:5",
            "ALTER TABLE t RENAME TO u",
            "CREATE TABLE t(a)",
            "t:5",
        ];
        expect(&script, &[("t", "5")], &[("t", "5"), ("u", "5")]);
    }

    #[test]
    fn keys_touched_after_a_rename_are_deleted_under_the_old_name() {
        let script = ["ALTER TABLE T RENAME TO \"U\"", "u:7"];
        expect(&script, &[("t", "7")], &[("u", "7")]);
    }

    #[test]
    fn names_may_swap() {
        let script = [
            "a:1",
            "b:2",
            "ALTER TABLE a RENAME TO x",
            "ALTER TABLE b RENAME TO a",
            "ALTER TABLE x RENAME TO b",
            "a:3",
        ];
        let deletes = [("a", "1"), ("b", "2,3")];
        let puts = [("a", "2,3"), ("b", "1")];
        expect(&script, &deletes, &puts);
    }

    #[test]
    fn a_dropped_table_needs_no_puts_and_its_successor_no_deletes() {
        let script = ["t:1", "DROP TABLE t", "CREATE TABLE t(b)", "t:9"];
        expect(&script, &[("t", "1")], &[("t", "9")]);
    }

    #[test]
    fn what_came_and_went_between_leaves_nothing() {
        expect(&["CREATE TABLE t(a)", "t:1", "DROP TABLE t"], &[], &[]);
    }

    #[test]
    fn a_renamed_newcomer_is_put_under_its_last_name() {
        let script = ["CREATE TABLE t(a)", "t:1", "ALTER TABLE t RENAME TO v"];
        expect(&script, &[], &[("v", "1")]);
    }

    #[test]
    fn statements_that_are_never_logged_are_an_alarm() {
        let script = ["CREATE TABLE t AS SELECT 1"];
        assert!(matches!(plan(&items(&script)), Err(Error::Corrupt(_))));
        let script = ["CREATE TABLE t(a)", "CREATE TABLE T(b)"];
        assert!(matches!(plan(&items(&script)), Err(Error::Corrupt(_))));
        let script = ["DROP TABLE t", "t:1"];
        assert!(matches!(plan(&items(&script)), Err(Error::Corrupt(_))));
    }
}
