//! The rules that hold for any expression and any table that is read, wherever they stand.

use std::collections::BTreeMap;

use turso_parser::ast::*;

use super::functions::{FunctionRule, function_rule, is_table_function_allowed};
use super::refusals;
use super::schema_facts::{SchemaFacts, key};
use super::syntax::sql_error;
use super::walk::{self, Visitor};
use super::{objects, rewrite};
use crate::error::Result;
use crate::names;

/// Tables that one statement may read, views and WITH tables written out. The engine plans
/// each of them anew, so `b = a JOIN a`, `c = b JOIN b` and so on would take it for ever.
const TABLE_READS_MAX: u64 = 1_000;

/// How often each table is read, by lower-case name.
pub(super) type Weights = BTreeMap<String, u64>;

/// Where the text that is checked will live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Runs now, for the session that sent it.
    Statement,
    /// Is to be stored in the schema: a view, a trigger's body, a default, a check.
    Schema,
    /// Is in the schema of an existing file.
    Stored,
}

/// Checks what it passes, and rewrites what must not run as it is written.
pub(super) struct Inspector<'f> {
    facts: &'f SchemaFacts,
    place: Place,
    weigher: Weigher,
    /// For each FROM clause being walked: its catalogue tables have a condition in WHERE.
    filtered: Vec<bool>,
    /// The statement was changed and must be printed.
    pub rewritten: bool,
    /// It asks for a session's values.
    pub session_values: bool,
    /// It has parameters.
    pub parameters: bool,
}

impl<'f> Inspector<'f> {
    pub fn new(facts: &'f SchemaFacts, place: Place) -> Self {
        Self {
            facts,
            place,
            weigher: Weigher::default(),
            filtered: Vec::new(),
            rewritten: false,
            session_values: false,
            parameters: false,
        }
    }

    /// Refuses a statement that reads too many tables. Called when the walk is over.
    pub fn finish(&self) -> Result<()> {
        let reads = self.facts.weigh(self.weigher.reads());
        if reads > TABLE_READS_MAX {
            let subject = format!("more than {TABLE_READS_MAX} table reads");
            return Err(refusals::EXPANSION.refuse(&subject));
        }
        Ok(())
    }

    fn function(&mut self, name: &Name, arguments: usize) -> Result<()> {
        let name = name.as_str();
        match function_rule(name) {
            FunctionRule::Allowed => check_arguments(name, arguments),
            FunctionRule::SessionValue(_) => {
                self.session_values = true;
                Ok(())
            }
            FunctionRule::CustomType => Err(refusals::CUSTOM_TYPE.refuse(name)),
            FunctionRule::Refused => Err(refusals::FUNCTION.refuse(name)),
            FunctionRule::Unknown => Err(sql_error(format!("no such function: {name}"))),
        }
    }

    fn variable(&mut self) -> Result<()> {
        self.parameters = true;
        match self.place {
            Place::Statement => Ok(()),
            Place::Schema | Place::Stored => {
                Err(sql_error("parameters are not allowed in the schema".into()))
            }
        }
    }

    /// A table that is read by name.
    fn table(&mut self, table: &QualifiedName) -> Result<()> {
        let name = table.name.as_str();
        if objects::is_temp_schema_table(name) && self.place == Place::Statement {
            return Ok(());
        }
        objects::check_object(table)?;
        if objects::is_schema_table(name) || objects::is_sequence_table(name) {
            if self.place == Place::Schema {
                return Err(refusals::SCHEMA_TABLE_IN_SCHEMA.refuse(name));
            }
        } else if names::is_reserved(name) {
            return Err(sql_error(format!("no such table: {name}")));
        } else if key(name).starts_with("pragma_") && !is_table_function_allowed(name) {
            return Err(refusals::TABLE_FUNCTION.refuse(name));
        }
        self.weigher.add(name);
        Ok(())
    }

    fn table_function(&mut self, name: &QualifiedName, args: &[Box<Expr>]) -> Result<()> {
        objects::check_schema(name)?;
        let function = name.name.as_str();
        if !is_table_function_allowed(function) {
            return Err(refusals::TABLE_FUNCTION.refuse(function));
        }
        for arg in args {
            match arg.as_ref() {
                Expr::Literal(Literal::String(text)) => {
                    objects::check_name(text.trim_matches('\''))?;
                }
                Expr::Id(name) if name.quoted() => objects::check_name(name.as_str())?,
                _ => {}
            }
        }
        self.weigher.add(function);
        Ok(())
    }

    fn source(&mut self, source: &SelectTable) -> Result<()> {
        match source {
            SelectTable::Table(name, alias, _) => {
                check_alias(alias)?;
                self.table(name)
            }
            SelectTable::TableCall(name, args, alias) => {
                check_alias(alias)?;
                self.table_function(name, args)
            }
            SelectTable::Select(_, alias) | SelectTable::Sub(_, alias) => check_alias(alias),
        }
    }
}

impl Visitor for Inspector<'_> {
    fn expr(&mut self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::FunctionCall { name, args, .. } => self.function(name, args.len()),
            Expr::FunctionCallStar { name, .. } => self.function(name, 0),
            Expr::InTable { rhs, args, .. } if args.is_empty() => {
                if objects::is_schema_table(rhs.name.as_str()) {
                    return Err(refusals::SCHEMA_TABLE_IN_SCHEMA.refuse(rhs.name.as_str()));
                }
                self.table(rhs)
            }
            Expr::InTable { rhs, args, .. } => self.table_function(rhs, args),
            Expr::Array { .. } | Expr::Subscript { .. } => {
                Err(refusals::CUSTOM_TYPE.refuse("an array"))
            }
            Expr::Variable(_) => self.variable(),
            _ => Ok(()),
        }
    }

    fn from(
        &mut self,
        clause: &mut FromClause,
        filter: Option<&mut Option<Box<Expr>>>,
    ) -> Result<()> {
        self.source(&clause.select)?;
        for join in &clause.joins {
            self.source(&join.table)?;
        }
        let filter = filter.filter(|_| rewrite::can_filter(clause));
        self.filtered.push(filter.is_some());
        if let (Place::Statement, Some(filter)) = (self.place, filter) {
            self.rewritten |= rewrite::hide_internal(self.facts, clause, filter);
        }
        Ok(())
    }

    fn leave_from(&mut self, clause: &mut FromClause) -> Result<()> {
        let filtered = self.filtered.pop().expect("entered before it is left");
        if self.place == Place::Statement {
            self.rewritten |= rewrite::wrap_internal(self.facts, clause, filtered);
        }
        Ok(())
    }

    fn enter_with_table(&mut self, table: &CommonTableExpr) -> Result<()> {
        let name = table.tbl_name.as_str();
        objects::check_name(name)?;
        if names::is_reserved(name) {
            return Err(refusals::INTERNAL_TABLE.refuse(name));
        }
        self.weigher.enter_with_table(table)
    }

    fn leave_with_table(&mut self, table: &CommonTableExpr) -> Result<()> {
        self.weigher.leave_with_table(table)
    }
}

/// How often a view reads each table.
pub(super) fn reads_of(select: &Select) -> Weights {
    let mut weigher = Weigher::default();
    walk::select(&mut select.clone(), &mut weigher).expect("weighing refuses nothing");
    weigher.reads().clone()
}

/// True when a statement calls a function that answers for a session.
pub(super) fn uses_session_values(statement: &Stmt) -> bool {
    let mut search = SessionSearch { found: false };
    walk::statement(&mut statement.clone(), &mut search).expect("searching refuses nothing");
    search.found
}

/// The engine reports a wrong number of arguments here on the standard output.
fn check_arguments(name: &str, arguments: usize) -> Result<()> {
    if names::same(name, "group_concat") && !(1..=2).contains(&arguments) {
        return Err(sql_error(format!(
            "wrong number of arguments to function {name}()"
        )));
    }
    Ok(())
}

fn check_alias(alias: &Option<As>) -> Result<()> {
    match alias {
        Some(alias) => objects::check_name(alias.name().as_str()),
        None => Ok(()),
    }
}

/// Counts table reads. A WITH table counts as what it reads itself.
#[derive(Default)]
struct Weigher {
    reads: Weights,
    /// What encloses the WITH table being read.
    enclosing: Vec<Weights>,
    with_tables: BTreeMap<String, Weights>,
}

impl Weigher {
    fn reads(&self) -> &Weights {
        &self.reads
    }

    fn add(&mut self, name: &str) {
        let name = key(name);
        let Some(known) = self.with_tables.get(&name) else {
            let count = self.reads.entry(name).or_default();
            *count = count.saturating_add(1);
            return;
        };
        for (table, more) in known {
            let count = self.reads.entry(table.clone()).or_default();
            *count = count.saturating_add(*more);
        }
    }
}

impl Visitor for Weigher {
    fn expr(&mut self, expr: &mut Expr) -> Result<()> {
        if let Expr::InTable { rhs, .. } = expr {
            self.add(rhs.name.as_str());
        }
        Ok(())
    }

    fn from(&mut self, clause: &mut FromClause, _: Option<&mut Option<Box<Expr>>>) -> Result<()> {
        let joined = clause.joins.iter().map(|join| &join.table);
        for source in std::iter::once(&clause.select).chain(joined) {
            if let SelectTable::Table(name, ..) | SelectTable::TableCall(name, ..) = source.as_ref()
            {
                self.add(name.name.as_str());
            }
        }
        Ok(())
    }

    fn enter_with_table(&mut self, _: &CommonTableExpr) -> Result<()> {
        self.enclosing.push(std::mem::take(&mut self.reads));
        Ok(())
    }

    /// Two WITH tables of one name in different places: the heavier one counts for both.
    fn leave_with_table(&mut self, table: &CommonTableExpr) -> Result<()> {
        let enclosing = self.enclosing.pop().expect("entered before it is left");
        let reads = std::mem::replace(&mut self.reads, enclosing);
        let total = |weights: &Weights| weights.values().fold(0u64, |a, b| a.saturating_add(*b));
        let known = self.with_tables.entry(key(table.tbl_name.as_str()));
        let known = known.or_default();
        if total(&reads) >= total(known) {
            *known = reads;
        }
        Ok(())
    }
}

struct SessionSearch {
    found: bool,
}

impl Visitor for SessionSearch {
    fn expr(&mut self, expr: &mut Expr) -> Result<()> {
        if let Expr::FunctionCall { name, .. } | Expr::FunctionCallStar { name, .. } = expr {
            let rule = function_rule(name.as_str());
            self.found |= matches!(rule, FunctionRule::SessionValue(_));
        }
        Ok(())
    }

    fn from(&mut self, _: &mut FromClause, _: Option<&mut Option<Box<Expr>>>) -> Result<()> {
        Ok(())
    }
}
