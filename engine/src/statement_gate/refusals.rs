//! What is refused, why, and what to do instead.
//!
//! One row for each reason: the word that metrics and clients see, and the texts of which
//! both the error message and `docs/sql.md` are made. The words are stable; texts may
//! improve.

use crate::error::Error;

/// A row of the table of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The stable word, as in the label of `statements_refused_total`.
    pub reason: &'static str,
    /// The statement forms it is about.
    pub what: &'static str,
    /// Why they are refused.
    pub why: &'static str,
    /// What to do instead.
    pub instead: &'static str,
}

impl Refusal {
    /// The error, with the name or the number that it is about, which may be empty.
    pub(crate) fn refuse(&self, subject: &str) -> Error {
        Error::refused(self.reason, self.message(subject))
    }

    /// The sentence that a client reads.
    pub(crate) fn message(&self, subject: &str) -> String {
        let prefix = if subject.is_empty() {
            String::new()
        } else {
            format!("{subject}: ")
        };
        format!("{prefix}{}; {}", self.why, self.instead)
    }
}

/// All refusals, in the order of the documentation.
pub fn all() -> &'static [Refusal] {
    &ALL
}

pub(crate) const UPDATE_OR_REPLACE: Refusal = Refusal {
    reason: "update_or_replace",
    what: "UPDATE OR REPLACE, as a statement or in a trigger",
    why: "UPDATE OR REPLACE evicts rows that the engine does not capture, so replicas \
             would keep them",
    instead: "delete the rows in the way first, or use INSERT ... ON CONFLICT DO UPDATE",
};

pub(crate) const ON_CONFLICT_REPLACE: Refusal = Refusal {
    reason: "on_conflict_replace",
    what: "a PRIMARY KEY or UNIQUE constraint declared ON CONFLICT REPLACE",
    why: "a key declared ON CONFLICT REPLACE lets every UPDATE evict rows that the \
             engine does not capture",
    instead: "declare the key without it and write INSERT OR REPLACE where you mean it \
                 (NOT NULL ON CONFLICT REPLACE is fine)",
};

pub(crate) const REPLACE_FIRES_UPDATE: Refusal = Refusal {
    reason: "replace_fires_update",
    what: "INSERT OR REPLACE or REPLACE into a table whose triggers, directly or \
              through others, run an UPDATE; a trigger that would make such a statement \
              possible",
    why: "an UPDATE inside a trigger inherits OR REPLACE from the statement that fired \
             it and then evicts rows that the engine does not capture",
    instead: "use INSERT ... ON CONFLICT DO UPDATE, or DELETE and INSERT",
};

pub(crate) const INTERNAL_TABLE: Refusal = Refusal {
    reason: "internal_table",
    what: "names that begin with `_tidegate_`, `turso_cdc` or `__turso_`, wherever a table, \
              index, view or trigger is named",
    why: "these objects are Tidegate's or the engine's own",
    instead: "choose another name",
};

pub(crate) const OTHER_SCHEMA: Refusal = Refusal {
    reason: "other_schema",
    what: "a schema name other than main, as in temp.t or aux.t",
    why: "there is one database and its schema is called main",
    instead: "leave the schema name out",
};

pub(crate) const TEMP: Refusal = Refusal {
    reason: "temp",
    what: "TEMP tables, views and triggers",
    why: "a TEMP object lives in one connection, and connections are shared here; the \
             engine also captures its rows under a bare name",
    instead: "use an ordinary table, or WITH for a single statement",
};

pub(crate) const ATTACH: Refusal = Refusal {
    reason: "attach",
    what: "ATTACH and DETACH",
    why: "only the one database of the cluster is replicated",
    instead: "import the other file's rows through the client, or with `tidegate \
                 import` into a cluster of its own",
};

pub(crate) const VACUUM: Refusal = Refusal {
    reason: "vacuum",
    what: "VACUUM and VACUUM INTO",
    why: "VACUUM rewrites rows without capturing it, and VACUUM INTO writes a file on \
             the server",
    instead: "use `tidegate backup` for a copy; free pages are used again by themselves",
};

pub(crate) const ANALYZE: Refusal = Refusal {
    reason: "analyze",
    what: "ANALYZE",
    why: "the statistics it writes are not captured, so nodes would plan differently",
    instead: "leave it out; PRAGMA optimize is accepted and does nothing",
};

pub(crate) const WITHOUT_ROWID: Refusal = Refusal {
    reason: "without_rowid",
    what: "WITHOUT ROWID tables",
    why: "the log names rows by their rowid, and the engine can only insert into such a \
             table",
    instead: "leave WITHOUT ROWID out; the primary key stays a key",
};

pub(crate) const GENERATED_COLUMN: Refusal = Refusal {
    reason: "generated_column",
    what: "generated columns",
    why: "they are an experimental feature of the engine",
    instead: "compute the value in a view, in an expression index, or when writing",
};

pub(crate) const VIRTUAL_TABLE: Refusal = Refusal {
    reason: "virtual_table",
    what: "CREATE VIRTUAL TABLE (FTS5, R-Tree and others)",
    why: "what a virtual table stores is not captured",
    instead: "keep the data in ordinary tables",
};

pub(crate) const MATERIALIZED_VIEW: Refusal = Refusal {
    reason: "materialized_view",
    what: "CREATE MATERIALIZED VIEW",
    why: "it is an experimental feature of the engine and its rows are not captured",
    instead: "use a view, or a table kept up to date by triggers",
};

pub(crate) const CUSTOM_TYPE: Refusal = Refusal {
    reason: "custom_type",
    what: "CREATE TYPE, CREATE DOMAIN and array values",
    why: "they are an experimental feature of the engine",
    instead: "use the five SQLite types, and JSON for lists",
};

pub(crate) const SEQUENCE: Refusal = Refusal {
    reason: "sequence",
    what: "CREATE SEQUENCE, DROP SEQUENCE",
    why: "a sequence object moves without being captured",
    instead: "use INTEGER PRIMARY KEY AUTOINCREMENT",
};

pub(crate) const INDEX_METHOD: Refusal = Refusal {
    reason: "index_method",
    what: "CREATE INDEX ... USING and index parameters",
    why: "index modules are an experimental feature of the engine",
    instead: "use an ordinary index",
};

pub(crate) const INSTEAD_OF_TRIGGER: Refusal = Refusal {
    reason: "instead_of_trigger",
    what: "INSTEAD OF triggers and other triggers on a view",
    why: "the engine does not run them",
    instead: "write to the tables behind the view",
};

pub(crate) const ROWID_SHADOWED: Refusal = Refusal {
    reason: "rowid_shadowed",
    what: "a table with columns named `rowid`, `oid` and `_rowid_` and no INTEGER PRIMARY KEY",
    why: "no name is left for the rowid, by which rows are replicated",
    instead: "rename one of the three columns",
};

pub(crate) const OPTIMIZE_INDEX: Refusal = Refusal {
    reason: "optimize_index",
    what: "OPTIMIZE INDEX",
    why: "it belongs to index modules, which are an experimental feature of the engine",
    instead: "leave it out",
};

pub(crate) const ALTER_COLUMN: Refusal = Refusal {
    reason: "alter_column",
    what: "ALTER TABLE ... ALTER COLUMN",
    why: "it is the engine's own extension and changes stored rows without capturing it",
    instead: "make a new table, copy the rows, drop the old one and rename the new one",
};

pub(crate) const FUNCTION: Refusal = Refusal {
    reason: "function",
    what: "functions that write, load code or show the connection behind a session: \
              load_extension, nextval, setval, currval and the engine's internal ones",
    why: "this function reads or changes state that is not replicated",
    instead: "leave it out",
};

pub(crate) const TABLE_FUNCTION: Refusal = Refusal {
    reason: "table_function",
    what: "table-valued functions outside the list below",
    why: "this table-valued function reads or changes state that is not replicated",
    instead: "leave it out",
};

pub(crate) const SESSION_VALUE_IN_SCHEMA: Refusal = Refusal {
    reason: "session_value_in_schema",
    what: "last_insert_rowid(), changes() and total_changes() in a view, DEFAULT, CHECK \
              or index",
    why: "they answer for the session that asks, and what is stored in the schema is \
             run for all sessions",
    instead: "put the function into the statement itself",
};

pub(crate) const SCHEMA_TABLE_IN_SCHEMA: Refusal = Refusal {
    reason: "schema_table_in_schema",
    what: "sqlite_schema and sqlite_sequence in a view or trigger",
    why: "they also hold objects that are Tidegate's own, which are filtered out only \
             in statements",
    instead: "read the table in a statement",
};

pub(crate) const SCHEMA_TABLE_WRITE: Refusal = Refusal {
    reason: "schema_table_write",
    what: "writing to sqlite_schema",
    why: "the schema is changed by CREATE, ALTER and DROP, which are replicated",
    instead: "use those",
};

pub(crate) const SEQUENCE_TABLE_WRITE: Refusal = Refusal {
    reason: "sequence_table_write",
    what: "writing to sqlite_sequence in other forms than UPDATE of seq, DELETE, and \
              INSERT ... VALUES with a literal table name",
    why: "the table also holds a row that is Tidegate's own",
    instead: "use one of those forms",
};

pub(crate) const PRAGMA_UNKNOWN: Refusal = Refusal {
    reason: "pragma_unknown",
    what: "PRAGMAs that are not in the lists below",
    why: "this PRAGMA is unknown to the engine, which would silently do nothing",
    instead: "leave it out",
};

pub(crate) const PRAGMA_SETTING: Refusal = Refusal {
    reason: "pragma_setting",
    what: "PRAGMAs that change how the server runs: journal_mode, synchronous, \
             query_only and others",
    why: "this is a setting of the server, not of a session",
    instead: "leave it out; the configuration of the server decides",
};

pub(crate) const PRAGMA_SEMANTICS: Refusal = Refusal {
    reason: "pragma_semantics",
    what: "PRAGMAs that change what statements mean: defer_foreign_keys, \
              ignore_check_constraints, recursive_triggers and others",
    why: "the engine does not know this setting or cannot replicate what it changes",
    instead: "leave it out",
};

pub(crate) const EXPLAIN_SCHEMA: Refusal = Refusal {
    reason: "explain_schema",
    what: "EXPLAIN of anything but SELECT, INSERT, UPDATE and DELETE",
    why: "the engine may run what it should only explain",
    instead: "explain the query itself",
};

pub(crate) const CREATE_AS_PARAMETERS: Refusal = Refusal {
    reason: "create_as_parameters",
    what: "parameters in CREATE TABLE ... AS SELECT",
    why: "the statement is run as several, without parameters",
    instead: "create the table first and fill it with INSERT ... SELECT",
};

pub(crate) const BRACKETS: Refusal = Refusal {
    reason: "brackets",
    what: "square brackets that could be a subscript as well as a quoted name",
    why: "after a value [ begins a subscript, and arrays are an experimental feature of \
             the engine",
    instead: "quote names with double quotes",
};

pub(crate) const NESTING: Refusal = Refusal {
    reason: "nesting",
    what: "parentheses and subqueries nested too deep",
    why: "the statement is nested too deep",
    instead: "use WITH, or several statements",
};

pub(crate) const COMPOUND_TERMS: Refusal = Refusal {
    reason: "compound_terms",
    what: "too many terms of UNION, EXCEPT and INTERSECT",
    why: "the compound SELECT has too many terms",
    instead: "use VALUES with many rows, or several statements",
};

pub(crate) const SELECTS: Refusal = Refusal {
    reason: "selects",
    what: "too many SELECTs in one statement",
    why: "the statement holds too many SELECTs",
    instead: "use several statements",
};

pub(crate) const WITH_TABLES: Refusal = Refusal {
    reason: "with_tables",
    what: "too many tables in WITH",
    why: "the statement names too many tables in WITH",
    instead: "use several statements",
};

pub(crate) const UPSERT_CLAUSES: Refusal = Refusal {
    reason: "upsert_clauses",
    what: "too many ON CONFLICT clauses in one INSERT",
    why: "the INSERT has too many ON CONFLICT clauses",
    instead: "leave the conflict target out of the last one",
};

pub(crate) const COLUMNS: Refusal = Refusal {
    reason: "columns",
    what: "too many columns in a CREATE statement",
    why: "the statement names too many columns",
    instead: "split the table",
};

pub(crate) const EXPANSION: Refusal = Refusal {
    reason: "expansion",
    what: "views and WITH tables that multiply: too many table reads after they are put \
              into the statement",
    why: "with its views and WITH tables written out, the statement reads too many \
             tables",
    instead: "store an intermediate result in a table",
};

pub(crate) const STATEMENT: Refusal = Refusal {
    reason: "statement",
    what: "any statement that is not listed as allowed",
    why: "this statement is not known to replicate",
    instead: "see docs/sql.md for what runs",
};

static ALL: [Refusal; 40] = [
    UPDATE_OR_REPLACE,
    ON_CONFLICT_REPLACE,
    REPLACE_FIRES_UPDATE,
    INTERNAL_TABLE,
    OTHER_SCHEMA,
    TEMP,
    ATTACH,
    VACUUM,
    ANALYZE,
    WITHOUT_ROWID,
    GENERATED_COLUMN,
    VIRTUAL_TABLE,
    MATERIALIZED_VIEW,
    CUSTOM_TYPE,
    SEQUENCE,
    INDEX_METHOD,
    INSTEAD_OF_TRIGGER,
    ROWID_SHADOWED,
    OPTIMIZE_INDEX,
    ALTER_COLUMN,
    FUNCTION,
    TABLE_FUNCTION,
    SESSION_VALUE_IN_SCHEMA,
    SCHEMA_TABLE_IN_SCHEMA,
    SCHEMA_TABLE_WRITE,
    SEQUENCE_TABLE_WRITE,
    PRAGMA_UNKNOWN,
    PRAGMA_SETTING,
    PRAGMA_SEMANTICS,
    EXPLAIN_SCHEMA,
    CREATE_AS_PARAMETERS,
    BRACKETS,
    NESTING,
    COMPOUND_TERMS,
    SELECTS,
    WITH_TABLES,
    UPSERT_CLAUSES,
    COLUMNS,
    EXPANSION,
    STATEMENT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_listed_once() {
        let defined = include_str!("refusals.rs")
            .lines()
            .filter(|line| line.starts_with("pub(crate) const "))
            .count();
        assert_eq!(defined, all().len());
        let words: std::collections::BTreeSet<_> = all().iter().map(|r| r.reason).collect();
        assert_eq!(words.len(), all().len());
    }

    #[test]
    fn a_message_is_one_sentence_that_names_its_subject() {
        let message = TEMP.message("t");
        assert!(message.starts_with("t: a TEMP object"), "{message}");
        assert!(message.contains("; use an ordinary table"), "{message}");
    }
}
