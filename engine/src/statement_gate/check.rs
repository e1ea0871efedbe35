//! The rules that hold for any expression and any table that is read, wherever they stand.

use turso_parser::ast::*;

use super::functions::{FunctionRule, function_rule, is_table_function_allowed};
use super::refusals;
use super::schema_facts::{SchemaFacts, key};
use super::syntax::sql_error;
use super::walk::{self, Visitor};
use super::weights::Weigher;
use super::{objects, rewrite};
use crate::error::Result;
use crate::names;

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

    /// Refuses a statement that reads too many tables, or in too deep a nest. Called when
    /// the walk is over.
    pub fn finish(&self) -> Result<()> {
        self.facts.check_weight(self.weigher.weight())
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
            Expr::Array { .. }
            | Expr::Subscript { .. }
            | Expr::Binary(_, Operator::ArrayContains | Operator::ArrayOverlap, _) => {
                Err(refusals::CUSTOM_TYPE.refuse("an array"))
            }
            Expr::Cast {
                type_name: Some(to),
                ..
            } if to.is_array() => Err(refusals::CUSTOM_TYPE.refuse("an array")),
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

    fn deeper(&mut self, units: usize) {
        self.weigher.deeper(units);
    }

    fn shallower(&mut self, units: usize) {
        self.weigher.shallower(units);
    }
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
