//! Names of objects: whose they are, and in which schema.

use turso_parser::ast::QualifiedName;

use super::refusals;
use super::syntax::sql_error;
use crate::error::Result;
use crate::names;

/// The names of the schema table, current and old.
const SCHEMA_TABLES: [&str; 2] = ["sqlite_schema", "sqlite_master"];
/// The schema table of TEMP objects, of which there are none here.
const TEMP_SCHEMA_TABLES: [&str; 2] = ["sqlite_temp_schema", "sqlite_temp_master"];

/// True for `sqlite_schema` and its older name.
pub(super) fn is_schema_table(name: &str) -> bool {
    SCHEMA_TABLES.iter().any(|known| names::same(known, name))
}

/// True for the schema table of TEMP objects.
pub(super) fn is_temp_schema_table(name: &str) -> bool {
    TEMP_SCHEMA_TABLES
        .iter()
        .any(|known| names::same(known, name))
}

/// True for the table of AUTOINCREMENT values.
pub(super) fn is_sequence_table(name: &str) -> bool {
    names::same(name, "sqlite_sequence")
}

/// Refuses a name that is Tidegate's or the engine's.
pub(super) fn check_name(name: &str) -> Result<()> {
    if names::is_internal(name) {
        Err(refusals::INTERNAL_TABLE.refuse(name))
    } else {
        Ok(())
    }
}

/// Refuses a schema other than `main`.
pub(super) fn check_schema(name: &QualifiedName) -> Result<()> {
    match &name.db_name {
        Some(schema) if !names::same(schema.as_str(), "main") => {
            let written = format!("{}.{}", schema.as_str(), name.name.as_str());
            Err(refusals::OTHER_SCHEMA.refuse(&written))
        }
        _ => Ok(()),
    }
}

/// The name of an object that is made, changed or dropped.
pub(super) fn check_object(name: &QualifiedName) -> Result<()> {
    check_schema(name)?;
    check_name(name.name.as_str())
}

/// The name of an object to be made: SQLite's own prefix is taken too.
pub(super) fn check_new_object(name: &QualifiedName) -> Result<()> {
    check_object(name)?;
    if names::is_reserved(name.name.as_str()) {
        return Err(sql_error(format!(
            "object name reserved for internal use: {}",
            name.name.as_str()
        )));
    }
    Ok(())
}
