//! The format of `e2e/sql/*.sql`, which those files describe at their head.
//!
//! A statement ends with a semicolon at the end of a line; a trigger with `END;`.

use anyhow::{Context, Result, bail};

/// Statements that share a database.
#[derive(Debug)]
pub struct Section {
    pub title: String,
    /// Too costly to be run in every way.
    pub large: bool,
    pub forms: Vec<Form>,
}

/// One form, or the preparation of a section.
#[derive(Debug)]
pub struct Form {
    /// `None` for preparation, which is not counted.
    pub name: Option<String>,
    /// Makes no sense inside an interactive transaction.
    pub autocommit_only: bool,
    pub statements: Vec<Statement>,
}

/// A statement and what must come of it.
#[derive(Debug)]
pub struct Statement {
    pub sql: String,
    pub expect: Expect,
    pub line: usize,
}

/// What must come of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    Success,
    /// Fails with this code; the transaction, if there is one, goes on.
    Error(String),
    /// Fails with this code and ends its transaction.
    Gone(String),
    /// Does not pass the statement gate, for this reason.
    Refused(String),
}

impl Section {
    /// The forms that count.
    pub fn counted(&self) -> impl Iterator<Item = &Form> {
        self.forms.iter().filter(|form| form.name.is_some())
    }
}

impl Form {
    /// True when the form begins and ends transactions itself.
    pub fn controls_transactions(&self) -> bool {
        self.statements.iter().any(|statement| {
            let first = statement.sql.split([' ', ';']).next();
            first.is_some_and(|word| ["BEGIN", "SAVEPOINT"].contains(&word))
        })
    }
}

/// Reads a whole file.
pub fn parse(text: &str) -> Result<Vec<Section>> {
    let mut parser = Parser::default();
    for (index, line) in text.lines().enumerate() {
        parser
            .line(index + 1, line)
            .with_context(|| format!("line {}", index + 1))?;
    }
    if !parser.pending.is_empty() {
        bail!("the last statement has no end: {}", parser.pending);
    }
    Ok(parser.sections)
}

#[derive(Default)]
struct Parser {
    sections: Vec<Section>,
    pending: String,
    pending_line: usize,
    expect: Option<Expect>,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<()> {
        if self.pending.is_empty() {
            if line.trim().is_empty() {
                return Ok(());
            }
            if let Some(comment) = line.strip_prefix("--") {
                return self.directive(comment.trim());
            }
            self.pending_line = number;
        } else {
            self.pending.push('\n');
        }
        self.pending.push_str(line);
        if is_complete(&self.pending) {
            self.finish_statement()?;
        }
        Ok(())
    }

    /// A comment that is no directive is a comment.
    fn directive(&mut self, text: &str) -> Result<()> {
        if let Some(title) = text.strip_prefix("# ") {
            self.sections.push(Section {
                title: title.to_owned(),
                large: false,
                forms: Vec::new(),
            });
        } else if let Some(name) = text.strip_prefix("## ") {
            self.start_form(Some(name.to_owned()))?;
        } else if text == "setup" {
            self.start_form(None)?;
        } else if text == "large" {
            self.section()?.large = true;
        } else if text == "only: autocommit" {
            self.form()?.autocommit_only = true;
        } else if let Some(expected) = text.strip_prefix("expect: ") {
            self.expect = Some(parse_expect(expected)?);
        }
        Ok(())
    }

    fn start_form(&mut self, name: Option<String>) -> Result<()> {
        self.section()?.forms.push(Form {
            name,
            autocommit_only: false,
            statements: Vec::new(),
        });
        Ok(())
    }

    fn section(&mut self) -> Result<&mut Section> {
        self.sections.last_mut().context("outside any section")
    }

    fn form(&mut self) -> Result<&mut Form> {
        self.section()?.forms.last_mut().context("outside any form")
    }

    fn finish_statement(&mut self) -> Result<()> {
        let statement = Statement {
            sql: expand(&std::mem::take(&mut self.pending))?,
            expect: self.expect.take().unwrap_or(Expect::Success),
            line: self.pending_line,
        };
        self.form()?.statements.push(statement);
        Ok(())
    }
}

fn is_complete(text: &str) -> bool {
    let is_trigger = text.starts_with("CREATE TRIGGER");
    text.ends_with(if is_trigger { "END;" } else { ";" })
}

fn parse_expect(text: &str) -> Result<Expect> {
    let (kind, detail) = text.split_once(' ').context("expect: KIND DETAIL")?;
    Ok(match kind {
        "error" => Expect::Error(detail.to_owned()),
        "gone" => Expect::Gone(detail.to_owned()),
        "refused" => Expect::Refused(detail.to_owned()),
        other => bail!("unknown expectation {other}"),
    })
}

/// Replaces each `{1..N: text}` and `{N*text}`. A brace that begins neither is left alone.
fn expand(sql: &str) -> Result<String> {
    let mut expanded = String::new();
    let mut rest = sql;
    while let Some(start) = rest.find('{') {
        expanded.push_str(&rest[..start]);
        rest = &rest[start..];
        let copies = rest.find('}').and_then(|end| copies(&rest[1..end]));
        match (copies, rest.find('}')) {
            (Some(text), Some(end)) => {
                expanded.push_str(&text);
                rest = &rest[end + 1..];
            }
            _ => {
                expanded.push('{');
                rest = &rest[1..];
            }
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn copies(inside: &str) -> Option<String> {
    let (count, text, separator) = match inside.strip_prefix("1..") {
        Some(list) => list.split_once(": ").map(|(n, text)| (n, text, ", "))?,
        None => inside.split_once('*').map(|(n, text)| (n, text, ""))?,
    };
    let count: u32 = count.parse().ok()?;
    let copies: Vec<String> = (1..=count)
        .map(|n| {
            text.replace('#', &n.to_string())
                .replace('@', &(n - 1).to_string())
        })
        .collect();
    Some(copies.join(separator))
}
