//! The catalogue: every user object of a snapshot, in a form that two nodes can compare.
//!
//! The engine's stored text of one and the same object differs by the path it took (an
//! ALTER rewrites it), so texts are compared in their **normal form**: the print of the
//! pinned parser. Both nodes run the same parser because both run the same engine version,
//! which the handshake checks.
//!
//! Objects are ordered by kind and name, because their order in the schema table means
//! nothing. Triggers are the exception: they keep their creation order, which is the order
//! in which they fire. On a replica they are dormant, and take part as if they were awake.
//!
//! What is left out: the capture table and its companions, the engine's own tables, and the
//! tables of Tidegate. The DDL log and the history are replicated but trimmed by each node
//! in its own time; the handshake compares the history.

use turso_parser::ast;
use xxhash_rust::xxh3::Xxh3;

use crate::error::Result;
use crate::names;
use crate::schema::{TableShape, parse_one};
use crate::triggers;
use crate::value::{Value, ValueRef};
use crate::view::ReadView;

/// The user's objects and final values in one snapshot.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// User tables, by name.
    pub tables: Vec<TableInfo>,
    /// Every user object in normal form: tables, indexes, views by name, then triggers in
    /// creation order.
    pub objects: Vec<SchemaObject>,
    /// Hash over `objects`.
    pub schema_hash: u128,
    /// AUTOINCREMENT counters of user tables, by table name.
    pub sequences: Vec<(String, Value)>,
    /// `PRAGMA user_version`.
    pub user_version: i64,
    /// `PRAGMA application_id`.
    pub application_id: i64,
    /// Hash over the counters and the two pragmas.
    pub finals_hash: u128,
}

/// A user table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Name, columns, rowid.
    pub shape: TableShape,
    /// Names of its indexes that have a text of their own.
    pub indexes: Vec<String>,
}

/// What kind of object a text makes. The order is the order of comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// An index with a CREATE INDEX of its own.
    Index,
    /// A view.
    View,
    /// A trigger, awake or dormant.
    Trigger,
}

/// One object of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaObject {
    /// What it is.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// Its text in normal form.
    pub text: String,
}

/// Reads the catalogue of a view's snapshot.
pub fn catalogue(view: &mut ReadView<'_>) -> Result<Catalogue> {
    let stored = stored_objects(view)?;
    let tables = table_infos(&stored)?;
    let mut objects: Vec<SchemaObject> = stored.iter().map(StoredObject::normal).collect();
    objects.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    for trigger in triggers::trigger_set(view)? {
        objects.push(SchemaObject {
            kind: ObjectKind::Trigger,
            text: normal_form(&trigger.sql),
            name: trigger.name,
        });
    }
    let schema_hash = hash_objects(&objects);
    let sequences = sequences(view)?;
    let user_version = pragma(view, "user_version")?;
    let application_id = pragma(view, "application_id")?;
    let finals_hash = hash_finals(&sequences, user_version, application_id);
    Ok(Catalogue {
        tables,
        objects,
        schema_hash,
        sequences,
        user_version,
        application_id,
        finals_hash,
    })
}

/// The print of the pinned parser. A text it cannot read stands for itself.
pub fn normal_form(sql: &str) -> String {
    match parse_one(sql) {
        Ok(mut statement) => {
            forget_where_made(&mut statement);
            statement.to_string()
        }
        Err(_) => sql.to_owned(),
    }
}

impl ObjectKind {
    /// In lower case, as the schema table says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Index => "index",
            Self::View => "view",
            Self::Trigger => "trigger",
        }
    }
}

/// A row of the schema table, triggers and internal objects left out.
struct StoredObject {
    kind: ObjectKind,
    name: String,
    table: String,
    sql: String,
}

impl StoredObject {
    fn normal(&self) -> SchemaObject {
        SchemaObject {
            kind: self.kind,
            name: self.name.clone(),
            text: normal_form(&self.sql),
        }
    }
}

fn stored_objects(view: &mut ReadView<'_>) -> Result<Vec<StoredObject>> {
    let mut objects = Vec::new();
    let sql = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
    view.query(sql, &[], |row| {
        let kind = match row.text(0)? {
            "table" => ObjectKind::Table,
            "index" => ObjectKind::Index,
            "view" => ObjectKind::View,
            _ => return Ok(()),
        };
        let (name, table) = (row.text(1)?.to_owned(), row.text(2)?.to_owned());
        if names::is_user(&name) && names::is_user(&table) {
            let sql = row.text(3)?.to_owned();
            objects.push(StoredObject {
                kind,
                name,
                table,
                sql,
            });
        }
        Ok(())
    })?;
    Ok(objects)
}

fn table_infos(stored: &[StoredObject]) -> Result<Vec<TableInfo>> {
    let mut tables = Vec::new();
    for object in stored.iter().filter(|o| o.kind == ObjectKind::Table) {
        let mut shape = TableShape::parse(&object.sql)?;
        shape.name.clone_from(&object.name);
        let indexes = stored
            .iter()
            .filter(|o| o.kind == ObjectKind::Index && names::same(&o.table, &object.name))
            .map(|o| o.name.clone())
            .collect();
        tables.push(TableInfo { shape, indexes });
    }
    tables.sort_by(|a, b| a.shape.name.cmp(&b.shape.name));
    Ok(tables)
}

/// `IF NOT EXISTS` and a schema name say how an object was made, not what it is.
fn forget_where_made(statement: &mut ast::Stmt) {
    match statement {
        ast::Stmt::CreateTable {
            if_not_exists,
            tbl_name: name,
            ..
        }
        | ast::Stmt::CreateIndex {
            if_not_exists,
            idx_name: name,
            ..
        }
        | ast::Stmt::CreateView {
            if_not_exists,
            view_name: name,
            ..
        }
        | ast::Stmt::CreateTrigger {
            if_not_exists,
            trigger_name: name,
            ..
        } => {
            *if_not_exists = false;
            name.db_name = None;
        }
        _ => {}
    }
}

/// Counters of tables that clients own; the capture table has one as well.
fn sequences(view: &mut ReadView<'_>) -> Result<Vec<(String, Value)>> {
    let mut sequences = Vec::new();
    let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'sqlite_sequence'";
    if view.query_all(exists, &[])?.is_empty() {
        return Ok(sequences);
    }
    let sql = "SELECT name, seq FROM sqlite_sequence ORDER BY name, seq";
    view.query(sql, &[], |row| {
        let name = row.text(0)?;
        if names::is_user(name) {
            sequences.push((name.to_owned(), row.value(1)?));
        }
        Ok(())
    })?;
    Ok(sequences)
}

fn pragma(view: &mut ReadView<'_>, name: &str) -> Result<i64> {
    let mut value = 0;
    view.query(&format!("PRAGMA {name}"), &[], |row| {
        value = row.integer(0)?;
        Ok(())
    })?;
    Ok(value)
}

fn hash_objects(objects: &[SchemaObject]) -> u128 {
    let mut hash = Xxh3::new();
    for object in objects {
        put_text(&mut hash, object.kind.as_str());
        put_text(&mut hash, &object.name);
        put_text(&mut hash, &object.text);
    }
    hash.digest128()
}

fn hash_finals(sequences: &[(String, Value)], user_version: i64, application_id: i64) -> u128 {
    let mut hash = Xxh3::new();
    for (name, value) in sequences {
        put_text(&mut hash, name);
        match value.as_ref() {
            ValueRef::Integer(i) => hash.update(&i.to_le_bytes()),
            // Only somebody who edits the file by hand stores anything else here.
            other => put_text(&mut hash, &format!("{other:?}")),
        }
    }
    hash.update(&user_version.to_le_bytes());
    hash.update(&application_id.to_le_bytes());
    hash.digest128()
}

fn put_text(hash: &mut Xxh3, text: &str) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}
