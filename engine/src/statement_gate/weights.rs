//! What a statement weighs when its views and WITH tables are written out.
//!
//! The engine plans a view or a WITH table anew wherever it is read, and one inside the
//! other. So a short text can stand for a million reads (`b` reads `a` twice, `c` reads `b`
//! twice, and so on) or for a nest far deeper than its own parentheses. Both are summed up
//! here without writing anything out.

use std::collections::BTreeMap;

use turso_parser::ast::*;

use super::schema_facts::key;
use super::walk::{self, SELECT_DEPTH, Visitor};
use crate::error::Result;

/// Tables that one statement may read.
pub(super) const TABLE_READS_MAX: u64 = 1_000;
/// How deep its tree may be: a hundred subqueries in each other, or some less and
/// expressions as deep as the parser allows. A thread with a stack of 2 MiB bears it.
pub(super) const DEPTH_MAX: usize = 120 * SELECT_DEPTH;

/// A SELECT without its WITH tables: what it reads, and how deep it goes.
#[derive(Debug, Clone, Default)]
pub(super) struct Weight {
    /// By lower-case name.
    pub reads: BTreeMap<String, Reads>,
    /// The deepest place of its own.
    pub deepest: usize,
}

/// How a table is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reads {
    /// How often.
    pub count: u64,
    /// In how deep a place, at most.
    pub depth: usize,
}

/// What a view's SELECT weighs.
pub(super) fn weight_of(select: &Select) -> Weight {
    let mut weigher = Weigher::default();
    walk::select(&mut select.clone(), &mut weigher).expect("weighing refuses nothing");
    weigher.weight
}

/// Sums up during a walk. A WITH table counts as what it reads itself.
#[derive(Debug, Default)]
pub(super) struct Weigher {
    weight: Weight,
    depth: usize,
    /// What encloses the WITH table being read.
    enclosing: Vec<(Weight, usize)>,
    with_tables: BTreeMap<String, Weight>,
}

impl Weigher {
    pub fn weight(&self) -> &Weight {
        &self.weight
    }

    /// A table is read here.
    pub fn add(&mut self, name: &str) {
        let name = key(name);
        match self.with_tables.get(&name) {
            None => self.weight.add(&name, 1, self.depth),
            Some(table) => {
                for (read, reads) in &table.reads {
                    let depth = self.depth + reads.depth;
                    self.weight.add(read, reads.count, depth);
                }
                let deepest = self.depth + table.deepest;
                self.weight.deepest = self.weight.deepest.max(deepest);
            }
        }
    }
}

impl Weight {
    fn add(&mut self, name: &str, count: u64, depth: usize) {
        let reads = self.reads.entry(name.to_owned()).or_default();
        reads.count = reads.count.saturating_add(count);
        reads.depth = reads.depth.max(depth);
        self.deepest = self.deepest.max(depth);
    }

    fn total(&self) -> u64 {
        let counts = self.reads.values().map(|reads| reads.count);
        counts.fold(0, u64::saturating_add)
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
        let enclosing = std::mem::take(&mut self.weight);
        let depth = std::mem::take(&mut self.depth);
        self.enclosing.push((enclosing, depth));
        Ok(())
    }

    /// Two WITH tables of one name in different places: the heavier one counts for both.
    fn leave_with_table(&mut self, table: &CommonTableExpr) -> Result<()> {
        let (enclosing, depth) = self.enclosing.pop().expect("entered before it is left");
        let weight = std::mem::replace(&mut self.weight, enclosing);
        self.depth = depth;
        let known = self.with_tables.entry(key(table.tbl_name.as_str()));
        let known = known.or_default();
        known.deepest = known.deepest.max(weight.deepest);
        if weight.total() >= known.total() {
            known.reads = weight.reads;
        }
        Ok(())
    }

    fn deeper(&mut self, units: usize) {
        self.depth += units;
        self.weight.deepest = self.weight.deepest.max(self.depth);
    }

    fn shallower(&mut self, units: usize) {
        self.depth -= units;
    }
}
