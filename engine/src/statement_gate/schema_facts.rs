//! What the gate must know of the schema.
//!
//! Some statements are harmless alone and not beside a trigger (`REPLACE INTO t` where a
//! trigger of `t` updates another table), so the gate needs to know tables, foreign keys,
//! views and trigger bodies. [`SchemaFacts`] is that knowledge: read from the schema table,
//! parsed once, shared until `PRAGMA schema_version` moves, and changeable by applying
//! parsed DDL, which is how a new object is judged together with what is there and how a
//! script is judged without an engine.

use std::collections::{BTreeMap, BTreeSet};

use turso_parser::ast::*;

use super::check::Place;
use super::facts_of::{add_column, table_facts, trigger_facts};
use super::weights::{DEPTH_MAX, TABLE_READS_MAX, Weight, weight_of};
use super::{classify, ddl, parse, refusals};
use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::names;

/// Views in views in views: the engine writes them out recursively.
const VIEW_DEPTH_MAX: usize = 50;

/// The schema as far as the gate needs it. Cheap to share in an `Arc`.
#[derive(Debug, Clone, Default)]
pub struct SchemaFacts {
    version: i64,
    tables: BTreeMap<String, TableFacts>,
    views: BTreeMap<String, ViewFacts>,
    triggers: BTreeMap<String, TriggerFacts>,
    /// Index name to table name.
    indexes: BTreeMap<String, String>,
    objections: Vec<Objection>,
}

/// Something in an existing file that would not replicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The object's name.
    pub object: String,
    /// The stable word of the refusal.
    pub reason: &'static str,
    /// Why, and what to do about it.
    pub message: String,
}

/// A table.
#[derive(Debug, Clone, Default)]
pub struct TableFacts {
    /// The name as the schema spells it.
    pub name: String,
    /// Column names in order. Empty for CREATE TABLE AS before the engine has made it.
    pub columns: Vec<String>,
    /// Its primary key, if one is declared.
    pub primary_key: Vec<String>,
    /// True when a column is AUTOINCREMENT.
    pub autoincrement: bool,
    /// What it refers to.
    pub foreign_keys: Vec<ForeignKey>,
}

/// A foreign key of a table.
#[derive(Debug, Clone)]
pub struct ForeignKey {
    /// The columns of the child.
    pub columns: Vec<String>,
    /// The parent table.
    pub parent: String,
    /// The columns of the parent; empty means its primary key.
    pub parent_columns: Vec<String>,
    /// `ON DELETE`
    pub on_delete: RefAct,
    /// `ON UPDATE`
    pub on_update: RefAct,
    /// Checked at COMMIT.
    pub deferred: bool,
}

/// A view.
#[derive(Debug, Clone)]
struct ViewFacts {
    weight: Weight,
}

/// A trigger.
#[derive(Debug, Clone)]
pub(super) struct TriggerFacts {
    pub name: String,
    pub table: String,
    pub event: Event,
    pub commands: Vec<Command>,
    /// Calls `last_insert_rowid()`, `changes()` or `total_changes()`.
    pub uses_session_values: bool,
}

/// What fires a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Insert,
    Update,
    Delete,
}

/// A statement in a trigger's body.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub action: Action,
    pub table: String,
}

/// What a statement does to its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Insert { replace: bool, upsert: bool },
    Update,
    Delete,
}

impl SchemaFacts {
    /// Reads the schema through a connection. What would not replicate, or cannot be read,
    /// becomes an objection; reading does not fail over it.
    pub fn read(connection: &mut Connection) -> Result<Self> {
        let version = connection.query_integer("PRAGMA schema_version", &[])?;
        let mut rows = Vec::new();
        connection.query(
            "SELECT name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid",
            &[],
            |row| {
                let text = |i| row.text(i).map(str::to_owned);
                rows.push((text(0)?, text(1)?, text(2)?));
                Ok(())
            },
        )?;
        let user = |table: &str| names::is_user(table);
        let rows = rows.into_iter().filter(|(_, table, _)| user(table));
        let mut facts = Self::from_texts(rows.map(|(name, _, sql)| (name, sql)));
        facts.version = version.unwrap_or(0);
        Ok(facts)
    }

    /// From the texts of the schema table, in its order.
    pub fn from_texts(texts: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut facts = Self::default();
        for (name, sql) in texts {
            if let Err(error) = facts.add_stored(&sql) {
                facts.object(&name, &error);
            }
        }
        let unsafe_bodies: Vec<_> = facts.unsafe_bodies().collect();
        for (trigger, error) in unsafe_bodies {
            facts.object(&trigger, &error);
        }
        facts
    }

    /// `PRAGMA schema_version` at the time of reading: read again when it has moved.
    pub fn version(&self) -> i64 {
        self.version
    }

    /// What in an existing file would not replicate.
    pub fn objections(&self) -> &[Objection] {
        &self.objections
    }

    /// A table, whatever the case of its name.
    pub fn table(&self, name: &str) -> Option<&TableFacts> {
        self.tables.get(&key(name))
    }

    /// True when a table or a view has this name.
    pub fn has_relation(&self, name: &str) -> bool {
        self.tables.contains_key(&key(name)) || self.views.contains_key(&key(name))
    }

    /// All tables.
    pub fn tables(&self) -> impl Iterator<Item = &TableFacts> {
        self.tables.values()
    }

    /// True when a user's table has an AUTOINCREMENT column, so that `sqlite_sequence` is of
    /// interest to clients.
    pub fn has_autoincrement(&self) -> bool {
        self.tables.values().any(|table| table.autoincrement)
    }

    /// True when a foreign key is checked at COMMIT.
    pub fn has_deferred_keys(&self) -> bool {
        let mut keys = self.tables.values().flat_map(|t| &t.foreign_keys);
        keys.any(|key| key.deferred)
    }

    pub(super) fn is_view(&self, name: &str) -> bool {
        self.views.contains_key(&key(name))
    }

    pub(super) fn triggers(&self) -> impl Iterator<Item = &TriggerFacts> {
        self.triggers.values()
    }

    pub(super) fn triggers_of(
        &self,
        table: &str,
        event: Event,
    ) -> impl Iterator<Item = &TriggerFacts> {
        self.triggers
            .values()
            .filter(move |t| t.event == event && names::same(&t.table, table))
    }

    /// Refuses what reads too many tables, or in too deep a nest, when its views are
    /// written out.
    pub(super) fn check_weight(&self, weight: &Weight) -> Result<()> {
        let (total, deepest) = self.written_out(weight, &mut BTreeMap::new(), 0);
        if deepest > DEPTH_MAX {
            return Err(refusals::NESTING.refuse(""));
        }
        if total > TABLE_READS_MAX {
            let subject = format!("more than {TABLE_READS_MAX} table reads");
            return Err(refusals::EXPANSION.refuse(&subject));
        }
        Ok(())
    }

    /// Table reads and depth of a SELECT with its views. A view is summed up once.
    fn written_out(
        &self,
        weight: &Weight,
        known: &mut BTreeMap<String, (u64, usize)>,
        views: usize,
    ) -> (u64, usize) {
        if views > VIEW_DEPTH_MAX {
            return (0, usize::MAX);
        }
        let (mut total, mut deepest) = (0u64, weight.deepest);
        for (name, reads) in &weight.reads {
            let (each, depth) = match (known.get(name), self.views.get(name)) {
                (Some(seen), _) => *seen,
                (None, Some(view)) => self.written_out(&view.weight, known, views + 1),
                (None, None) => (1, 0),
            };
            known.insert(name.clone(), (each, depth));
            total = total.saturating_add(reads.count.saturating_mul(each));
            deepest = deepest.max(reads.depth.saturating_add(depth));
        }
        (total, deepest)
    }

    /// The schema as it would be after this statement. Names that do not exist are passed
    /// over: whether the statement succeeds is the engine's to say.
    pub(super) fn apply(&mut self, statement: &Stmt) {
        match statement {
            Stmt::CreateTable { tbl_name, body, .. } => {
                let table = table_facts(tbl_name.name.as_str(), body);
                self.tables.entry(key(&table.name)).or_insert(table);
            }
            Stmt::CreateView {
                view_name, select, ..
            } => {
                let weight = weight_of(select);
                let name = key(view_name.name.as_str());
                self.views.entry(name).or_insert(ViewFacts { weight });
            }
            Stmt::CreateTrigger { trigger_name, .. } => {
                let name = key(trigger_name.name.as_str());
                if let Some(trigger) = trigger_facts(statement) {
                    self.triggers.entry(name).or_insert(trigger);
                }
            }
            Stmt::CreateIndex {
                idx_name, tbl_name, ..
            } => {
                let table = tbl_name.as_str().to_owned();
                let name = key(idx_name.name.as_str());
                self.indexes.entry(name).or_insert(table);
            }
            Stmt::DropTable { tbl_name, .. } => self.drop_table(tbl_name.name.as_str()),
            Stmt::DropView { view_name, .. } => {
                self.views.remove(&key(view_name.name.as_str()));
            }
            Stmt::DropTrigger { trigger_name, .. } => {
                self.triggers.remove(&key(trigger_name.name.as_str()));
            }
            Stmt::DropIndex { idx_name, .. } => {
                self.indexes.remove(&key(idx_name.name.as_str()));
            }
            Stmt::AlterTable(alter) => self.alter(alter.name.name.as_str(), &alter.body),
            _ => {}
        }
    }

    /// Trigger bodies that could evict rows uncaptured, each with the reason.
    pub(super) fn unsafe_bodies(&self) -> impl Iterator<Item = (String, Error)> {
        super::reach::unsafe_bodies(self)
    }

    fn add_stored(&mut self, sql: &str) -> Result<()> {
        let mut statement = parse(sql)?;
        self.apply(&statement);
        match ddl::check(&mut statement, self, Place::Stored)? {
            Some(_) => Ok(()),
            // A virtual table, a materialised view: never let through, so not in a file.
            None => Err(classify::refuse(&statement)),
        }
    }

    fn object(&mut self, name: &str, error: &Error) {
        let reason = match error {
            Error::Refused { reason, .. } => reason,
            _ => "unreadable",
        };
        self.objections.push(Objection {
            object: name.to_owned(),
            reason,
            message: error.to_string(),
        });
    }

    fn drop_table(&mut self, name: &str) {
        self.tables.remove(&key(name));
        self.triggers
            .retain(|_, trigger| !names::same(&trigger.table, name));
        self.indexes.retain(|_, table| !names::same(table, name));
    }

    fn alter(&mut self, name: &str, body: &AlterTableBody) {
        if let AlterTableBody::RenameTo(new) = body {
            return self.rename_table(name, new.as_str());
        }
        let Some(table) = self.tables.get_mut(&key(name)) else {
            return;
        };
        match body {
            AlterTableBody::AddColumn(column) => add_column(table, column),
            AlterTableBody::DropColumn(column) => table
                .columns
                .retain(|known| !names::same(known, column.as_str())),
            AlterTableBody::RenameColumn { old, new } => {
                let known = table.columns.iter_mut();
                for column in known.filter(|known| names::same(known, old.as_str())) {
                    *column = new.as_str().to_owned();
                }
                self.rename_column(name, old.as_str(), new.as_str());
            }
            AlterTableBody::RenameTo(_) | AlterTableBody::AlterColumn { .. } => {}
        }
    }

    /// Keys follow a renamed column.
    fn rename_column(&mut self, table: &str, old: &str, new: &str) {
        let rename = |columns: &mut Vec<String>| {
            for column in columns.iter_mut().filter(|c| names::same(c, old)) {
                *column = new.to_owned();
            }
        };
        for known in self.tables.values_mut() {
            let own = names::same(&known.name, table);
            if own {
                rename(&mut known.primary_key);
            }
            for key in &mut known.foreign_keys {
                if own {
                    rename(&mut key.columns);
                }
                if names::same(&key.parent, table) {
                    rename(&mut key.parent_columns);
                }
            }
        }
    }

    /// References follow a renamed table: the engine rewrites views, bodies and keys.
    fn rename_table(&mut self, old: &str, new: &str) {
        let rename = |name: &mut String| {
            if names::same(name, old) {
                *name = new.to_owned();
            }
        };
        if let Some(mut table) = self.tables.remove(&key(old)) {
            table.name = new.to_owned();
            self.tables.insert(key(new), table);
        }
        let keys = self.tables.values_mut().flat_map(|t| &mut t.foreign_keys);
        keys.for_each(|key| rename(&mut key.parent));
        for trigger in self.triggers.values_mut() {
            rename(&mut trigger.table);
            let commands = trigger.commands.iter_mut();
            commands.for_each(|command| rename(&mut command.table));
        }
        self.indexes.values_mut().for_each(rename);
        for view in self.views.values_mut() {
            if let Some(reads) = view.weight.reads.remove(&key(old)) {
                view.weight.reads.insert(key(new), reads);
            }
        }
    }
}

impl TableFacts {
    /// A name that means the rowid: an alias that no column shadows, else the key.
    pub(super) fn rowid_name(&self) -> &str {
        let taken = |alias: &&str| self.columns.iter().any(|c| names::same(c, alias));
        ["rowid", "_rowid_", "oid"]
            .into_iter()
            .find(|alias| !taken(alias))
            .or(self.primary_key.first().map(String::as_str))
            .unwrap_or("rowid")
    }
}

/// Names compare without regard to ASCII case.
pub(super) fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Tables that foreign keys reach from `table`, with the event they suffer.
pub(super) fn cascades(
    facts: &SchemaFacts,
    table: &str,
    event: Event,
) -> BTreeSet<(String, Event)> {
    let mut reached = BTreeSet::new();
    for child in facts.tables() {
        for foreign in child
            .foreign_keys
            .iter()
            .filter(|k| names::same(&k.parent, table))
        {
            let action = match event {
                Event::Delete => foreign.on_delete,
                Event::Update => foreign.on_update,
                Event::Insert => continue,
            };
            let suffered = match (action, event) {
                (RefAct::Cascade, Event::Delete) => Event::Delete,
                (RefAct::Cascade | RefAct::SetNull | RefAct::SetDefault, _) => Event::Update,
                (RefAct::Restrict | RefAct::NoAction, _) => continue,
            };
            reached.insert((key(&child.name), suffered));
        }
    }
    reached
}
