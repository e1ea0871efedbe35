//! What the statement gate must know of the schema, shared and kept current.
//!
//! Reading the schema costs a scan of it and parsing; inspecting a statement costs a parse.
//! Both are done once: the facts are shared until the schema changes, and with them a table
//! of the statements inspected under them, so that a statement sent again is not parsed
//! again. When the schema changes, both are replaced together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::adapter::Connection;
use crate::error::{Error, Result};
use crate::statement_gate::{self, Inspected, Limits, Objection, SchemaFacts};

/// Statements remembered. When full, the memory starts anew: rare, and cheaper than order.
const REMEMBERED_MAX: usize = 2_048;
/// Longer texts are parsed each time.
const REMEMBERED_SQL_BYTES_MAX: usize = 4_096;

/// The facts of one version of the schema.
pub(crate) struct Facts {
    version: i64,
    facts: SchemaFacts,
    remembered: Mutex<HashMap<String, Arc<Inspected>>>,
}

/// The facts of the newest committed schema.
pub(crate) struct CurrentFacts {
    current: RwLock<Arc<Facts>>,
}

impl Facts {
    /// Reads the schema as the connection sees it, inside a transaction or not.
    pub(crate) fn read(connection: &mut Connection) -> Result<Self> {
        let version = schema_version(connection)?;
        Ok(Self {
            version,
            facts: SchemaFacts::read(connection)?,
            remembered: Mutex::new(HashMap::new()),
        })
    }

    /// True while the connection still sees the schema that these facts were read from.
    pub(crate) fn are_of(&self, connection: &mut Connection) -> Result<bool> {
        Ok(schema_version(connection)? == self.version)
    }

    /// What in the schema would not replicate.
    pub(crate) fn objections(&self) -> &[Objection] {
        self.facts.objections()
    }

    /// Inspects one statement.
    pub(crate) fn inspect(&self, sql: &str, limits: &Limits) -> Result<Arc<Inspected>> {
        if sql.len() > REMEMBERED_SQL_BYTES_MAX {
            return statement_gate::inspect(sql, &self.facts, limits).map(Arc::new);
        }
        if let Some(known) = self.lock().get(sql) {
            return Ok(known.clone());
        }
        let inspected = Arc::new(statement_gate::inspect(sql, &self.facts, limits)?);
        let mut remembered = self.lock();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(sql.to_owned(), inspected.clone());
        Ok(inspected)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Inspected>>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl CurrentFacts {
    /// Reads them for the first time.
    pub(crate) fn read(connection: &mut Connection) -> Result<Self> {
        Ok(Self {
            current: RwLock::new(Arc::new(Facts::read(connection)?)),
        })
    }

    /// The facts in force.
    pub(crate) fn get(&self) -> Arc<Facts> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Reads them again if the schema moved. Call it outside a transaction.
    pub(crate) fn refresh(&self, connection: &mut Connection) -> Result<()> {
        if self.get().are_of(connection)? {
            return Ok(());
        }
        let fresh = Arc::new(Facts::read(connection)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

fn schema_version(connection: &mut Connection) -> Result<i64> {
    let version = connection.query_integer("PRAGMA schema_version", &[])?;
    version.ok_or_else(|| Error::Corrupt("no schema_version".into()))
}
