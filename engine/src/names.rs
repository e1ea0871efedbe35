//! Names: how to quote them, and which ones belong to Tidegate or to the engine.
//!
//! Clients neither see nor name internal objects. Two internal tables are replicated as
//! ordinary rows ([`DDL_TABLE`], [`HISTORY_TABLE`]); every other one is local to its node.

/// The engine's change-capture table, made lazily by the engine itself.
pub const CAPTURE_TABLE: &str = "turso_cdc";
/// One row for each statement that changed the schema; its id is its own seq. Replicated.
pub const DDL_TABLE: &str = "_tidegate_ddl";
/// The openings of this database's history. Replicated.
pub const HISTORY_TABLE: &str = "_tidegate_history";
/// Settings of this copy: format version, cluster id, floor. Local to the node.
pub const META_TABLE: &str = "_tidegate_meta";
/// The key lists of applied batches, packed. Local to the node, but of the same meaning as
/// the capture table: together they are the log.
pub const KEYS_TABLE: &str = "_tidegate_keys";
/// Triggers as the primary has them, asleep on a replica. Local to the node.
pub const DORMANT_TABLE: &str = "_tidegate_dormant";
/// A single captured row, touched when a transaction changes something that leaves no log
/// row of its own (a sequence, `user_version`, a trigger). Local to the node.
pub const TICK_TABLE: &str = "_tidegate_tick";
/// Registered replicas and the positions they have acknowledged. Local to the node.
pub const SLOTS_TABLE: &str = "_tidegate_slots";

/// Quotes an identifier for SQL text.
pub fn quote(name: &str) -> String {
    let mut quoted = String::with_capacity(name.len() + 2);
    quoted.push('"');
    for c in name.chars() {
        if c == '"' {
            quoted.push('"');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

/// Quotes text as an SQL literal.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// True for tables that clients may neither see nor name.
pub fn is_internal(name: &str) -> bool {
    has_prefix(name, "_tidegate_") || has_prefix(name, "turso_cdc") || has_prefix(name, "__turso_")
}

/// True for names that the engine keeps for its own catalogue.
pub fn is_reserved(name: &str) -> bool {
    has_prefix(name, "sqlite_")
}

/// True for tables whose rows a batch carries: a user's table or a replicated internal one.
pub fn is_replicated(name: &str) -> bool {
    !(is_internal(name) || is_reserved(name)) || name == DDL_TABLE || name == HISTORY_TABLE
}

/// True for a user's own table.
pub fn is_user(name: &str) -> bool {
    !is_internal(name) && !is_reserved(name)
}

/// Names compare without regard to ASCII case, as in SQLite.
pub fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

fn has_prefix(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_doubles_the_quote() {
        assert_eq!(quote("we\"ird"), "\"we\"\"ird\"");
        assert_eq!(literal("it's"), "'it''s'");
    }

    #[test]
    fn internal_names_are_recognised_whatever_their_case() {
        assert!(is_internal("TURSO_CDC"));
        assert!(is_internal("_Tidegate_meta"));
        assert!(!is_internal("turso"));
        assert!(is_replicated(DDL_TABLE) && !is_replicated(META_TABLE));
        assert!(!is_user("sqlite_sequence") && is_user("tidegate"));
    }
}
