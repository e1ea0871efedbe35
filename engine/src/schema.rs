//! Tables as their own text describes them.
//!
//! Columns come from the CREATE TABLE text through the parser of the engine's own version,
//! not from `pragma_table_info`, which fails on names that hold a quote. The text is also
//! what decides which alias of the rowid a query may use: `SELECT rowid` gives the user's
//! column when a table has one of that name.

use turso_parser::ast;
use turso_parser::parser::Parser;

use crate::error::{Error, Result};
use crate::names;
use crate::view::Reads;

/// The names under which SQL knows the rowid of a table that has no column of that name.
const ROWID_ALIASES: [&str; 3] = ["rowid", "_rowid_", "oid"];

/// What reading and writing the rows of a table takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableShape {
    /// The name, spelled as the schema spells it.
    pub name: String,
    /// Names of the stored columns, in order.
    pub columns: Vec<String>,
    /// A name that means the rowid in this table. Not quoted: quote it like a column.
    pub rowid_alias: String,
    /// The column that is itself the rowid (`INTEGER PRIMARY KEY`), by index.
    pub integer_primary_key: Option<usize>,
    /// The columns of the primary key, in its order; none where there is no key.
    pub primary_key: Vec<String>,
}

impl TableShape {
    /// The stored columns, quoted and joined by commas.
    pub fn column_list(&self) -> String {
        let quoted: Vec<String> = self.columns.iter().map(|c| names::quote(c)).collect();
        quoted.join(", ")
    }

    /// The quoted name.
    pub fn quoted_name(&self) -> String {
        names::quote(&self.name)
    }

    /// From the text of a CREATE TABLE statement.
    pub fn parse(sql: &str) -> Result<Self> {
        match parse_one(sql)? {
            ast::Stmt::CreateTable { tbl_name, body, .. } => {
                shape_of(tbl_name.name.as_str(), &body)
            }
            _ => Err(not_a_table(sql)),
        }
    }
}

/// The shape of a table, or `None` when there is no table of this name. Names compare
/// without regard to case.
pub fn table_shape(source: &mut impl Reads, name: &str) -> Result<Option<TableShape>> {
    let mut found = None;
    source.read(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name = ? COLLATE NOCASE",
        &[name.into()],
        |row| {
            found = Some((row.text(0)?.to_owned(), row.text(1)?.to_owned()));
            Ok(())
        },
    )?;
    let Some((name, sql)) = found else {
        return Ok(None);
    };
    let mut shape = TableShape::parse(&sql)?;
    shape.name = name;
    Ok(Some(shape))
}

/// Parses a text of exactly one statement, as the schema table holds it.
pub(crate) fn parse_one(sql: &str) -> Result<ast::Stmt> {
    let unreadable = |why: String| Error::Corrupt(format!("the schema holds {sql:?}: {why}"));
    match Parser::new(sql.as_bytes()).next() {
        Some(Ok(ast::Cmd::Stmt(statement))) => Ok(statement),
        Some(Ok(_)) => Err(unreadable("an EXPLAIN is no object".into())),
        Some(Err(error)) => Err(unreadable(error.to_string())),
        None => Err(unreadable("no statement".into())),
    }
}

/// True for a table whose key is a single column of type `INTEGER(n)`. The engine takes it
/// for the rowid; SQLite does not, so the two read such a file differently.
pub(crate) fn has_sized_integer_key(sql: &str) -> bool {
    let Ok(ast::Stmt::CreateTable {
        body:
            ast::CreateTableBody::ColumnsAndConstraints {
                columns,
                constraints,
                ..
            },
        ..
    }) = parse_one(sql)
    else {
        return false;
    };
    let columns: Vec<&ast::ColumnDefinition> = columns.iter().collect();
    let key = integer_primary_key(&columns, &constraints);
    let of_type = key.and_then(|key| columns[key].col_type.as_ref());
    of_type.is_some_and(|t| t.size.is_some())
}

fn shape_of(name: &str, body: &ast::CreateTableBody) -> Result<TableShape> {
    let ast::CreateTableBody::ColumnsAndConstraints {
        columns,
        constraints,
        ..
    } = body
    else {
        return Err(not_a_table(name));
    };
    let stored: Vec<&ast::ColumnDefinition> = columns.iter().filter(|c| !is_generated(c)).collect();
    let integer_primary_key = integer_primary_key(&stored, constraints);
    let columns: Vec<String> = stored
        .iter()
        .map(|c| c.col_name.as_str().to_owned())
        .collect();
    let rowid_alias = rowid_alias(&columns, integer_primary_key).ok_or_else(|| {
        Error::refused(
            "rowid_shadowed",
            format!(
                "table {name}: columns named rowid, _rowid_ and oid leave no name for the rowid"
            ),
        )
    })?;
    Ok(TableShape {
        name: name.to_owned(),
        columns,
        rowid_alias,
        integer_primary_key,
        primary_key: primary_key(&stored, constraints),
    })
}

fn primary_key(
    columns: &[&ast::ColumnDefinition],
    constraints: &[ast::NamedTableConstraint],
) -> Vec<String> {
    let by_table = constraints.iter().find_map(|c| match &c.constraint {
        ast::TableConstraint::PrimaryKey { columns, .. } => Some(columns),
        _ => None,
    });
    if let Some(key) = by_table {
        return key
            .iter()
            .filter_map(|c| key_column_name(&c.expr))
            .collect();
    }
    let is_key = |c: &&&ast::ColumnDefinition| {
        c.constraints
            .iter()
            .any(|c| matches!(c.constraint, ast::ColumnConstraint::PrimaryKey { .. }))
    };
    let names = columns.iter().filter(is_key);
    names.map(|c| c.col_name.as_str().to_owned()).collect()
}

fn rowid_alias(columns: &[String], integer_primary_key: Option<usize>) -> Option<String> {
    let taken = |alias: &str| columns.iter().any(|c| names::same(c, alias));
    ROWID_ALIASES
        .into_iter()
        .find(|alias| !taken(alias))
        .map(str::to_owned)
        .or_else(|| integer_primary_key.map(|i| columns[i].clone()))
}

/// The engine's own rule: one key column, declared INTEGER, and not `PRIMARY KEY DESC` in
/// the column's own constraint (in a table constraint DESC makes no difference).
fn integer_primary_key(
    columns: &[&ast::ColumnDefinition],
    constraints: &[ast::NamedTableConstraint],
) -> Option<usize> {
    let key_by_table = constraints.iter().find_map(|c| match &c.constraint {
        ast::TableConstraint::PrimaryKey { columns, .. } => Some(columns),
        _ => None,
    });
    if let Some(key) = key_by_table {
        let [only] = key.as_slice() else {
            return None;
        };
        let name = key_column_name(&only.expr)?;
        return columns
            .iter()
            .position(|c| names::same(c.col_name.as_str(), &name) && is_integer(c));
    }
    columns.iter().position(|column| {
        is_integer(column)
            && column.constraints.iter().any(|c| {
                matches!(
                    c.constraint,
                    ast::ColumnConstraint::PrimaryKey {
                        order: None | Some(ast::SortOrder::Asc),
                        ..
                    }
                )
            })
    })
}

fn key_column_name(expr: &ast::Expr) -> Option<String> {
    match expr {
        ast::Expr::Id(name) | ast::Expr::Name(name) => Some(name.as_str().to_owned()),
        ast::Expr::Literal(ast::Literal::String(text)) => Some(text.trim_matches('\'').to_owned()),
        ast::Expr::Collate(inner, _) => key_column_name(inner),
        _ => None,
    }
}

fn is_integer(column: &ast::ColumnDefinition) -> bool {
    column
        .col_type
        .as_ref()
        .is_some_and(|t| t.name.eq_ignore_ascii_case("INTEGER"))
}

fn is_generated(column: &ast::ColumnDefinition) -> bool {
    column
        .constraints
        .iter()
        .any(|c| matches!(c.constraint, ast::ColumnConstraint::Generated { .. }))
}

fn not_a_table(sql: &str) -> Error {
    Error::Corrupt(format!("not a CREATE TABLE with columns: {sql}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sql: &str) -> TableShape {
        TableShape::parse(sql).expect("a table")
    }

    #[test]
    fn columns_keep_their_odd_names() {
        let odd = shape(r#"CREATE TABLE "a""b" ("x y" INT, [it's], `q``r` TEXT, "Ünï" BLOB)"#);
        assert_eq!(odd.name, "a\"b");
        assert_eq!(odd.columns, ["x y", "it's", "q`r", "Ünï"]);
        assert_eq!(odd.column_list(), r#""x y", "it's", "q`r", "Ünï""#);
    }

    #[test]
    fn the_alias_of_the_rowid_avoids_columns_of_that_name() {
        assert_eq!(shape("CREATE TABLE t (a)").rowid_alias, "rowid");
        assert_eq!(shape("CREATE TABLE t (ROWID, b)").rowid_alias, "_rowid_");
        let two = shape("CREATE TABLE t (rowid, _rowid_ TEXT)");
        assert_eq!(two.rowid_alias, "oid");
        let all = TableShape::parse("CREATE TABLE t (rowid, _rowid_, oid)");
        assert!(matches!(
            all,
            Err(Error::Refused {
                reason: "rowid_shadowed",
                ..
            })
        ));
        let keyed = shape("CREATE TABLE t (rowid, _rowid_, oid, k INTEGER PRIMARY KEY)");
        assert_eq!(keyed.rowid_alias, "k");
    }

    #[test]
    fn an_integer_primary_key_is_told_from_other_keys() {
        let key = |sql: &str| shape(sql).integer_primary_key;
        assert_eq!(key("CREATE TABLE t (a, id INTEGER PRIMARY KEY)"), Some(1));
        assert_eq!(
            key("CREATE TABLE t (id integer, a, PRIMARY KEY (ID))"),
            Some(0)
        );
        assert_eq!(
            key("CREATE TABLE t (id INTEGER, PRIMARY KEY (id DESC))"),
            Some(0)
        );
        assert_eq!(key("CREATE TABLE t (id INTEGER PRIMARY KEY DESC)"), None);
        assert_eq!(key("CREATE TABLE t (id INT PRIMARY KEY)"), None);
        assert_eq!(
            key("CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b))"),
            None
        );
    }
}
