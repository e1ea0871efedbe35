//! The look at the text before the parser sees it.
//!
//! The parser and the engine recurse: 1,000 nested subqueries or a UNION of 5,000 terms end
//! in a stack overflow, which no handler can catch. So the tokens are counted first, in one
//! pass without recursion, and a text that is too large, too deep or too wide never reaches
//! either of them. (Parentheses are what is counted for depth: the parser itself bounds
//! the depth of expressions, but not that of subqueries in FROM.)
//!
//! The tokens come from the engine's own lexer, so that both always agree on where a string
//! or a comment ends. One thing that lexer leaves to its parser: after `[` comes either a
//! quoted name or a subscript. Where only a name can stand, this pass skips to the `]` as
//! the parser does; where both can, the text between the brackets must be free of whatever
//! would make the two readings differ.

use turso_parser::lexer::{Lexer, Token};
use turso_parser::token::TokenType as T;

use super::Limits;
use super::refusals::{self, Refusal};
use super::syntax;
use crate::error::{Error, Result};

/// The first tokens of a statement that are kept: enough for `EXPLAIN QUERY PLAN CREATE
/// TEMP TRIGGER` and for every form of BEGIN.
const LEAD_TOKENS: usize = 6;
/// Commas in one pair of parentheses of a CREATE statement. The parser compares the columns
/// of a view with each other, so their number must be bounded before it runs.
const CREATE_COMMAS_MAX: usize = 10_000;

/// One statement of a text, scanned and not parsed.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    /// From the first token to the last, without the semicolon.
    pub text: &'a str,
    /// Line of its first token, from 1.
    pub line: usize,
    /// Its first tokens, upper case.
    pub lead: Vec<String>,
    counts: Counts,
    /// The token that the lexer could not read; the piece ends there.
    broken: Option<Error>,
}

/// What grows with a statement, counted.
#[derive(Debug, Default)]
struct Counts {
    depth: usize,
    depth_max: usize,
    compounds: usize,
    selects: usize,
    ctes: usize,
    upserts: usize,
    variables: usize,
    variable_max: usize,
    brackets: usize,
    commas: usize,
}

/// Splits a text at its top-level semicolons; trigger bodies stay whole, empty pieces are
/// left out.
pub(super) fn pieces<'a>(sql: &'a str, limits: &Limits) -> Result<Vec<Piece<'a>>> {
    let mut scan = Scan::new(sql);
    let mut done: Vec<Piece<'a>> = Vec::new();
    while let Some(piece) = scan.next_piece() {
        if done.len() == limits.script_statements_max {
            return Err(Error::TooLarge(format!(
                "a script may hold {} statements; send it in parts",
                limits.script_statements_max
            )));
        }
        done.push(piece);
    }
    Ok(done)
}

impl Piece<'_> {
    /// Fails when the statement is unreadable, or more than the parser or the engine bear.
    pub fn check(&self, limits: &Limits) -> Result<()> {
        if self.text.len() > limits.sql_bytes_max {
            return Err(Error::TooLarge(format!(
                "a statement may have {} bytes and this one has {}; pass large values as parameters",
                limits.sql_bytes_max,
                self.text.len()
            )));
        }
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let counts = &self.counts;
        let too_many: [(usize, usize, &Refusal); 5] = [
            (counts.depth_max, limits.nesting_max, &refusals::NESTING),
            (
                counts.compounds,
                limits.compound_terms_max,
                &refusals::COMPOUND_TERMS,
            ),
            (counts.selects, limits.selects_max, &refusals::SELECTS),
            (counts.ctes, limits.with_tables_max, &refusals::WITH_TABLES),
            (
                counts.upserts,
                limits.upsert_clauses_max,
                &refusals::UPSERT_CLAUSES,
            ),
        ];
        for (count, max, reason) in too_many {
            if count > max {
                return Err(reason.refuse(&format!("{count} where {max} are allowed")));
            }
        }
        if counts.brackets > 0 {
            return Err(refusals::BRACKETS.refuse(""));
        }
        if self.lead.iter().any(|w| w == "CREATE") && counts.commas > CREATE_COMMAS_MAX {
            return Err(refusals::COLUMNS.refuse(""));
        }
        self.check_variables(limits)
    }

    fn check_variables(&self, limits: &Limits) -> Result<()> {
        let max = limits.params_max;
        if self.counts.variable_max > max {
            let message = format!("variable number must be between ?1 and ?{max}");
            return Err(syntax::sql_error(message));
        }
        if self.counts.variables > max {
            return Err(syntax::sql_error("too many SQL variables".into()));
        }
        Ok(())
    }
}

struct Scan<'a> {
    sql: &'a str,
    at: usize,
    line: usize,
    line_at: usize,
}

impl<'a> Scan<'a> {
    fn new(sql: &'a str) -> Self {
        Self {
            sql,
            at: 0,
            line: 1,
            line_at: 0,
        }
    }

    fn next_piece(&mut self) -> Option<Piece<'a>> {
        let mut draft = Draft::default();
        loop {
            let start = self.at;
            match self.next_token() {
                None => break,
                Some(Err(broken)) => {
                    draft.begin(start);
                    draft.broken = Some(broken);
                    self.at = self.sql.len();
                    draft.end = self.at;
                    break;
                }
                // White space and comments.
                Some(Ok(token)) if token.token_type == T::TK_NONE => {}
                Some(Ok(token)) if token.token_type == T::TK_SEMI && draft.ends_here() => {
                    if !draft.is_empty() {
                        break;
                    }
                }
                Some(Ok(token)) => {
                    draft.begin(start);
                    if token.token_type == T::TK_LBRACKET {
                        self.skip_bracket(&mut draft);
                    }
                    draft.take(&token);
                    draft.end = self.at;
                }
            }
        }
        let start = draft.start?;
        let line = self.line_of(start);
        Some(draft.finish(&self.sql[start..], start, line))
    }

    fn next_token(&mut self) -> Option<Result<Token<'a>>> {
        let rest = &self.sql.as_bytes()[self.at..];
        let mut lexer = Lexer::new(rest);
        let token = lexer.next()?;
        self.at += rest.len() - lexer.remaining().len();
        Some(token.map_err(|e| syntax::parser_error(self.sql, &e)))
    }

    /// Moves behind the `]` where a name is quoted. Where a subscript could be meant as
    /// well, the brackets may hold only what both readings pass over alike.
    fn skip_bracket(&mut self, draft: &mut Draft) {
        let rest = &self.sql[self.at..];
        let Some(length) = rest.find(']') else {
            self.at = self.sql.len();
            return;
        };
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | ' ' | '.' | ',' | '$');
        if draft.may_end_operand() && !rest[..length].chars().all(plain) {
            draft.counts.brackets += 1;
        }
        self.at += length + 1;
    }

    fn line_of(&mut self, at: usize) -> usize {
        let passed = &self.sql.as_bytes()[self.line_at..at];
        self.line += passed.iter().filter(|b| **b == b'\n').count();
        self.line_at = at;
        self.line
    }
}

/// A piece being read.
#[derive(Default)]
struct Draft {
    start: Option<usize>,
    end: usize,
    lead: Vec<String>,
    counts: Counts,
    broken: Option<Error>,
    /// The last two tokens: `; END` closes a trigger body.
    last: [Option<T>; 2],
    commas: Vec<usize>,
}

impl Draft {
    fn begin(&mut self, at: usize) {
        self.start.get_or_insert(at);
    }

    fn is_empty(&self) -> bool {
        self.start.is_none()
    }

    /// True when a semicolon ends the statement: always, but inside a trigger's body.
    fn ends_here(&self) -> bool {
        !self.is_trigger() || self.last == [Some(T::TK_SEMI), Some(T::TK_END)]
    }

    fn is_trigger(&self) -> bool {
        let words = self.lead.iter().map(String::as_str);
        let mut words = words.skip_while(|w| matches!(*w, "EXPLAIN" | "QUERY" | "PLAN"));
        words.next() == Some("CREATE")
            && match words.next() {
                Some("TEMP" | "TEMPORARY") => words.next() == Some("TRIGGER"),
                second => second == Some("TRIGGER"),
            }
    }

    /// True when the last token could be the end of an operand, after which `[` may begin a
    /// subscript. Words that only ever open or join clauses are not.
    fn may_end_operand(&self) -> bool {
        use T::*;
        !matches!(
            self.last[1],
            None | Some(
                TK_LP
                    | TK_COMMA
                    | TK_DOT
                    | TK_SEMI
                    | TK_EQ
                    | TK_NE
                    | TK_LT
                    | TK_GT
                    | TK_LE
                    | TK_GE
                    | TK_PLUS
                    | TK_MINUS
                    | TK_STAR
                    | TK_SLASH
                    | TK_REM
                    | TK_CONCAT
                    | TK_BITAND
                    | TK_BITOR
                    | TK_SELECT
                    | TK_DISTINCT
                    | TK_FROM
                    | TK_JOIN
                    | TK_AS
                    | TK_TABLE
                    | TK_INTO
                    | TK_UPDATE
                    | TK_ON
                    | TK_WHERE
                    | TK_AND
                    | TK_OR
                    | TK_NOT
                    | TK_SET
                    | TK_INDEX
                    | TK_REFERENCES
                    | TK_USING
                    | TK_HAVING
                    | TK_THEN
                    | TK_ELSE
                    | TK_WHEN
                    | TK_CONSTRAINT
                    | TK_COLLATE
                    | TK_ADD
                    | TK_TO
                    | TK_EXISTS
                    | TK_IN
                    | TK_CASE
                    | TK_BETWEEN
            )
        )
    }

    fn take(&mut self, token: &Token<'_>) {
        let text = || String::from_utf8_lossy(token.value);
        if self.lead.len() < LEAD_TOKENS {
            self.lead.push(text().to_ascii_uppercase());
        }
        let counts = &mut self.counts;
        match token.token_type {
            T::TK_LP => {
                counts.depth += 1;
                counts.depth_max = counts.depth_max.max(counts.depth);
                self.commas.push(0);
                match self.last[1] {
                    Some(T::TK_CONFLICT) => counts.upserts += 1,
                    Some(T::TK_AS | T::TK_MATERIALIZED) => counts.ctes += 1,
                    _ => {}
                }
            }
            T::TK_RP => {
                counts.depth = counts.depth.saturating_sub(1);
                self.commas.pop();
            }
            T::TK_COMMA => {
                if let Some(count) = self.commas.last_mut() {
                    *count += 1;
                    counts.commas = counts.commas.max(*count);
                }
            }
            T::TK_UNION | T::TK_EXCEPT | T::TK_INTERSECT => counts.compounds += 1,
            T::TK_SELECT => counts.selects += 1,
            T::TK_VARIABLE => {
                counts.variables += 1;
                if let Some(number) = text().strip_prefix('?')
                    && !number.is_empty()
                {
                    let number = number.parse().unwrap_or(usize::MAX);
                    counts.variable_max = counts.variable_max.max(number);
                }
            }
            _ => {}
        }
        self.last = [self.last[1], Some(token.token_type)];
    }

    fn finish<'a>(self, from_start: &'a str, start: usize, line: usize) -> Piece<'a> {
        Piece {
            text: from_start[..self.end - start].trim_end(),
            line,
            lead: self.lead,
            counts: self.counts,
            broken: self.broken,
        }
    }
}
