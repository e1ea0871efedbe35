//! `PRAGMA foreign_key_check`, which the engine does not know, as a SELECT.
//!
//! Migration tools switch foreign keys off, rebuild tables and then ask for orphans. The
//! engine's silence would tell them that there are none. So the gate asks each foreign key
//! of the schema itself.

use super::schema_facts::{ForeignKey, SchemaFacts, TableFacts};
use super::syntax::sql_error;
use crate::error::Result;
use crate::names;

const NOTHING: &str =
    "SELECT NULL AS \"table\", NULL AS rowid, NULL AS parent, NULL AS fkid WHERE 0";

/// The SELECT for one table, or for all.
pub(super) fn check_query(facts: &SchemaFacts, table: Option<&str>) -> Result<String> {
    let tables: Vec<&TableFacts> = match table {
        None => facts.tables().collect(),
        Some(name) => match facts.table(name) {
            Some(table) => vec![table],
            None => return Err(sql_error(format!("no such table: {name}"))),
        },
    };
    let mut orphans = Vec::new();
    for child in tables {
        // SQLite numbers the keys of a table from the last one declared.
        for (number, key) in child.foreign_keys.iter().rev().enumerate() {
            orphans.push(orphans_of(facts, child, key, number));
        }
    }
    if orphans.is_empty() {
        return Ok(NOTHING.to_owned());
    }
    Ok(orphans.join(" UNION ALL "))
}

fn orphans_of(facts: &SchemaFacts, child: &TableFacts, key: &ForeignKey, number: usize) -> String {
    let set: Vec<String> = key
        .columns
        .iter()
        .map(|column| format!("c.{} IS NOT NULL", names::quote(column)))
        .collect();
    let missing = match parent_columns(facts, key) {
        Some(parent) => {
            let pairs = parent.iter().zip(&key.columns);
            let equal: Vec<String> = pairs
                .map(|(p, c)| format!("p.{} = c.{}", names::quote(p), names::quote(c)))
                .collect();
            let parent = names::quote(&key.parent);
            let equal = equal.join(" AND ");
            format!(" AND NOT EXISTS (SELECT 1 FROM {parent} AS p WHERE {equal})")
        }
        None => String::new(),
    };
    format!(
        "SELECT {} AS \"table\", c.{} AS rowid, {} AS parent, {number} AS fkid \
         FROM {} AS c WHERE {}{missing}",
        names::literal(&child.name),
        names::quote(child.rowid_name()),
        names::literal(&key.parent),
        names::quote(&child.name),
        set.join(" AND "),
    )
}

/// The columns referred to. `None` when the parent does not exist or does not fit: then
/// every row that refers to it is an orphan.
fn parent_columns(facts: &SchemaFacts, key: &ForeignKey) -> Option<Vec<String>> {
    let parent = facts.table(&key.parent)?;
    let columns = if key.parent_columns.is_empty() {
        &parent.primary_key
    } else {
        &key.parent_columns
    };
    let fits = columns.len() == key.columns.len()
        && columns.iter().all(|column| {
            parent
                .columns
                .iter()
                .any(|known| names::same(known, column))
        });
    fits.then(|| columns.clone())
}
