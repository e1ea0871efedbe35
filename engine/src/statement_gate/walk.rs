//! A walk over every part of a statement.
//!
//! The gate looks at function calls and at the tables that are read, wherever they stand:
//! in subqueries, in RETURNING, in a window's frame. The walk reaches all of them, parents
//! first, and may change what it passes. Its recursion is as deep as the tree, which the
//! scan before the parser and the parser itself have bounded.

use turso_parser::ast::*;

use crate::error::Result;

/// What a walk does at the places it passes.
pub(super) trait Visitor {
    /// An expression, before its parts.
    fn expr(&mut self, expr: &mut Expr) -> Result<()>;

    /// A FROM clause, before its parts, with the WHERE clause it belongs to where there is
    /// one.
    fn from(&mut self, from: &mut FromClause, filter: Option<&mut Option<Box<Expr>>>)
    -> Result<()>;

    /// A FROM clause, after its parts.
    fn leave_from(&mut self, _from: &mut FromClause) -> Result<()> {
        Ok(())
    }

    /// A table of a WITH clause, before its SELECT.
    fn enter_with_table(&mut self, _table: &CommonTableExpr) -> Result<()> {
        Ok(())
    }

    /// The same, after its SELECT.
    fn leave_with_table(&mut self, _table: &CommonTableExpr) -> Result<()> {
        Ok(())
    }

    /// The walk goes down into a subquery or an expression.
    fn deeper(&mut self, _units: usize) {}

    /// The walk comes up again.
    fn shallower(&mut self, _units: usize) {}

    /// The result columns of a SELECT or of RETURNING, before their parts.
    fn columns(&mut self, _columns: &mut [ResultColumn]) -> Result<()> {
        Ok(())
    }
}

/// What a subquery counts in depth, where an expression counts one.
pub(super) const SELECT_DEPTH: usize = 10;

/// Walks a statement of any kind.
pub(super) fn statement(statement: &mut Stmt, v: &mut impl Visitor) -> Result<()> {
    match statement {
        Stmt::Select(query) | Stmt::CreateView { select: query, .. } => select(query, v),
        Stmt::CreateMaterializedView { select: query, .. } => select(query, v),
        Stmt::Insert { .. } | Stmt::Update(_) | Stmt::Delete { .. } => change(statement, v),
        Stmt::CreateTable { body, .. } => table_body(body, v),
        Stmt::CreateTrigger {
            when_clause,
            commands,
            ..
        } => {
            optional(when_clause, v)?;
            commands.iter_mut().try_for_each(|c| command(c, v))
        }
        Stmt::CreateIndex {
            columns,
            where_clause,
            ..
        } => {
            sorted(columns, v)?;
            optional(where_clause, v)
        }
        Stmt::AlterTable(AlterTable {
            body: AlterTableBody::AddColumn(definition),
            ..
        }) => column(definition, v),
        _ => Ok(()),
    }
}

/// Walks a SELECT.
pub(super) fn select(select: &mut Select, v: &mut impl Visitor) -> Result<()> {
    v.deeper(SELECT_DEPTH);
    parts_of_select(select, v)?;
    v.shallower(SELECT_DEPTH);
    Ok(())
}

fn parts_of_select(select: &mut Select, v: &mut impl Visitor) -> Result<()> {
    with(&mut select.with, v)?;
    core(&mut select.body.select, v)?;
    for compound in &mut select.body.compounds {
        core(&mut compound.select, v)?;
    }
    sorted(&mut select.order_by, v)?;
    if let Some(limit) = &mut select.limit {
        expr(&mut limit.expr, v)?;
        optional(&mut limit.offset, v)?;
    }
    Ok(())
}

/// Walks a WITH clause.
pub(super) fn with(with: &mut Option<With>, v: &mut impl Visitor) -> Result<()> {
    for table in with.iter_mut().flat_map(|with| &mut with.ctes) {
        v.enter_with_table(table)?;
        select(&mut table.select, v)?;
        v.leave_with_table(table)?;
    }
    Ok(())
}

/// Walks a FROM clause and what it holds.
pub(super) fn from(
    clause: &mut FromClause,
    filter: Option<&mut Option<Box<Expr>>>,
    v: &mut impl Visitor,
) -> Result<()> {
    v.from(clause, filter)?;
    source(&mut clause.select, v)?;
    for join in &mut clause.joins {
        source(&mut join.table, v)?;
        if let Some(JoinConstraint::On(on)) = &mut join.constraint {
            expr(on, v)?;
        }
    }
    v.leave_from(clause)
}

/// Walks result columns.
pub(super) fn columns(columns: &mut [ResultColumn], v: &mut impl Visitor) -> Result<()> {
    v.columns(columns)?;
    for column in columns {
        if let ResultColumn::Expr(value, _) = column {
            expr(value, v)?;
        }
    }
    Ok(())
}

/// Walks ORDER BY terms, conflict targets and indexed columns.
pub(super) fn sorted(columns: &mut [SortedColumn], v: &mut impl Visitor) -> Result<()> {
    columns.iter_mut().try_for_each(|c| expr(&mut c.expr, v))
}

/// Walks assignments.
pub(super) fn sets(sets: &mut [Set], v: &mut impl Visitor) -> Result<()> {
    sets.iter_mut().try_for_each(|set| expr(&mut set.expr, v))
}

/// Walks the ON CONFLICT clauses of an INSERT.
pub(super) fn upsert(clause: &mut Option<Box<Upsert>>, v: &mut impl Visitor) -> Result<()> {
    let mut next = clause.as_deref_mut();
    while let Some(clause) = next {
        if let Some(index) = &mut clause.index {
            sorted(&mut index.targets, v)?;
            optional(&mut index.where_clause, v)?;
        }
        if let UpsertDo::Set {
            sets: assigned,
            where_clause,
        } = &mut clause.do_clause
        {
            sets(assigned, v)?;
            optional(where_clause, v)?;
        }
        next = clause.next.as_deref_mut();
    }
    Ok(())
}

/// Walks an expression that may be absent.
pub(super) fn optional(value: &mut Option<Box<Expr>>, v: &mut impl Visitor) -> Result<()> {
    match value {
        Some(value) => expr(value, v),
        None => Ok(()),
    }
}

/// Walks an expression.
pub(super) fn expr(value: &mut Expr, v: &mut impl Visitor) -> Result<()> {
    v.expr(value)?;
    v.deeper(1);
    parts(value, v)?;
    v.shallower(1);
    Ok(())
}

fn parts(value: &mut Expr, v: &mut impl Visitor) -> Result<()> {
    match value {
        Expr::Between {
            lhs, start, end, ..
        } => each([lhs, start, end], v),
        Expr::Binary(left, _, right) => each([left, right], v),
        Expr::Case {
            base,
            when_then_pairs,
            else_expr,
        } => {
            optional(base, v)?;
            for (when, then) in when_then_pairs {
                each([when, then], v)?;
            }
            optional(else_expr, v)
        }
        Expr::Cast { expr: inner, .. }
        | Expr::Collate(inner, _)
        | Expr::FieldAccess { base: inner, .. }
        | Expr::IsNull(inner)
        | Expr::NotNull(inner)
        | Expr::Unary(_, inner) => expr(inner, v),
        Expr::Exists(query) | Expr::Subquery(query) => select(query, v),
        Expr::FunctionCall {
            args,
            order_by,
            within_group,
            filter_over,
            ..
        } => {
            each(args, v)?;
            sorted(order_by, v)?;
            sorted(within_group, v)?;
            tail(filter_over, v)
        }
        Expr::FunctionCallStar { filter_over, .. } => tail(filter_over, v),
        Expr::InList { lhs, rhs, .. } => {
            expr(lhs, v)?;
            each(rhs, v)
        }
        Expr::InSelect { lhs, rhs, .. } => {
            expr(lhs, v)?;
            select(rhs, v)
        }
        Expr::InTable { lhs, args, .. } => {
            expr(lhs, v)?;
            each(args, v)
        }
        Expr::Like {
            lhs, rhs, escape, ..
        } => {
            each([lhs, rhs], v)?;
            optional(escape, v)
        }
        Expr::Parenthesized(values) | Expr::Array { elements: values } => each(values, v),
        Expr::Subscript { base, index } => each([base, index], v),
        Expr::Raise(_, message) => optional(message, v),
        Expr::SubqueryResult { lhs, .. } => optional(lhs, v),
        Expr::Register(_)
        | Expr::DoublyQualified(..)
        | Expr::Id(_)
        | Expr::Column { .. }
        | Expr::RowId { .. }
        | Expr::Literal(_)
        | Expr::Name(_)
        | Expr::Qualified(..)
        | Expr::Variable(_)
        | Expr::Default => Ok(()),
    }
}

fn change(statement: &mut Stmt, v: &mut impl Visitor) -> Result<()> {
    match statement {
        Stmt::Insert {
            with: tables,
            body,
            returning,
            ..
        } => {
            with(tables, v)?;
            if let InsertBody::Select(query, clause) = body {
                select(query, v)?;
                upsert(clause, v)?;
            }
            columns(returning, v)
        }
        Stmt::Update(update) => {
            with(&mut update.with, v)?;
            sets(&mut update.sets, v)?;
            if let Some(clause) = &mut update.from {
                from(clause, Some(&mut update.where_clause), v)?;
            }
            optional(&mut update.where_clause, v)?;
            columns(&mut update.returning, v)
        }
        Stmt::Delete {
            with: tables,
            where_clause,
            returning,
            ..
        } => {
            with(tables, v)?;
            optional(where_clause, v)?;
            columns(returning, v)
        }
        _ => Ok(()),
    }
}

fn command(command: &mut TriggerCmd, v: &mut impl Visitor) -> Result<()> {
    match command {
        TriggerCmd::Update {
            sets: assigned,
            from: clause,
            where_clause,
            ..
        } => {
            sets(assigned, v)?;
            if let Some(clause) = clause {
                from(clause, Some(where_clause), v)?;
            }
            optional(where_clause, v)
        }
        TriggerCmd::Insert {
            select: query,
            upsert: clause,
            returning,
            ..
        } => {
            select(query, v)?;
            upsert(clause, v)?;
            columns(returning, v)
        }
        TriggerCmd::Delete { where_clause, .. } => optional(where_clause, v),
        TriggerCmd::Select(query) => select(query, v),
    }
}

fn table_body(body: &mut CreateTableBody, v: &mut impl Visitor) -> Result<()> {
    match body {
        CreateTableBody::AsSelect(query) => select(query, v),
        CreateTableBody::ColumnsAndConstraints {
            columns,
            constraints,
            ..
        } => {
            columns.iter_mut().try_for_each(|c| column(c, v))?;
            for constraint in constraints {
                match &mut constraint.constraint {
                    TableConstraint::Check { expr: check, .. } => expr(check, v)?,
                    TableConstraint::PrimaryKey { columns, .. }
                    | TableConstraint::Unique { columns, .. } => sorted(columns, v)?,
                    TableConstraint::ForeignKey { .. } => {}
                }
            }
            Ok(())
        }
    }
}

fn column(column: &mut ColumnDefinition, v: &mut impl Visitor) -> Result<()> {
    for constraint in &mut column.constraints {
        match &mut constraint.constraint {
            ColumnConstraint::Check { expr: value, .. }
            | ColumnConstraint::Default(value)
            | ColumnConstraint::Generated { expr: value, .. } => expr(value, v)?,
            _ => {}
        }
    }
    Ok(())
}

fn each<'e>(
    values: impl IntoIterator<Item = &'e mut Box<Expr>>,
    v: &mut impl Visitor,
) -> Result<()> {
    values.into_iter().try_for_each(|value| expr(value, v))
}

fn core(core: &mut OneSelect, v: &mut impl Visitor) -> Result<()> {
    match core {
        OneSelect::Select {
            columns: results,
            from: clause,
            where_clause,
            group_by,
            window_clause,
            ..
        } => {
            columns(results, v)?;
            if let Some(clause) = clause {
                from(clause, Some(where_clause), v)?;
            }
            optional(where_clause, v)?;
            if let Some(group_by) = group_by {
                each(&mut group_by.exprs, v)?;
                optional(&mut group_by.having, v)?;
            }
            for definition in window_clause {
                window(&mut definition.window, v)?;
            }
            Ok(())
        }
        OneSelect::Values(rows) => rows.iter_mut().try_for_each(|row| each(row, v)),
    }
}

fn source(table: &mut SelectTable, v: &mut impl Visitor) -> Result<()> {
    match table {
        SelectTable::Table(..) => Ok(()),
        SelectTable::TableCall(_, args, _) => each(args, v),
        SelectTable::Select(query, _) => select(query, v),
        SelectTable::Sub(clause, _) => {
            v.deeper(SELECT_DEPTH);
            from(clause, None, v)?;
            v.shallower(SELECT_DEPTH);
            Ok(())
        }
    }
}

fn tail(tail: &mut FunctionTail, v: &mut impl Visitor) -> Result<()> {
    optional(&mut tail.filter_clause, v)?;
    match &mut tail.over_clause {
        Some(Over::Window(definition)) => window(definition, v),
        Some(Over::Name(_)) | None => Ok(()),
    }
}

fn window(window: &mut Window, v: &mut impl Visitor) -> Result<()> {
    each(&mut window.partition_by, v)?;
    sorted(&mut window.order_by, v)?;
    let Some(frame) = &mut window.frame_clause else {
        return Ok(());
    };
    for bound in [Some(&mut frame.start), frame.end.as_mut()]
        .into_iter()
        .flatten()
    {
        if let FrameBound::Following(value) | FrameBound::Preceding(value) = bound {
            expr(value, v)?;
        }
    }
    Ok(())
}
