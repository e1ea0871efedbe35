//! Judging a script before it is run: would this schema and these statements replicate?
//!
//! Nothing is executed. Statement by statement the script passes the statement gate, and
//! what creates or changes a schema object is remembered for the statements after it, so
//! that a trigger on line 80 is judged with the tables of line 3.

use crate::error::{Error, Result};
use crate::statement_gate::{Kind, Limits, SchemaFacts, inspect_script};

/// What the gate says to one statement of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line on which the statement begins, from 1.
    pub line: usize,
    /// Its text.
    pub statement: String,
    /// What would become of it.
    pub verdict: Verdict,
}

/// What would become of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs and replicates.
    Passes(Kind),
    /// It is refused.
    Refused {
        /// The stable word.
        reason: &'static str,
        /// Why, and what to do instead.
        message: String,
    },
    /// It is not SQL that runs anywhere, or it is too large.
    Fails {
        /// What is wrong with it.
        message: String,
    },
}

/// Judges a script against an empty database.
pub fn check_script(text: &str) -> Result<Vec<Finding>> {
    check_script_with(text, SchemaFacts::default(), &Limits::default())
}

/// Judges a script against a schema.
pub fn check_script_with(
    text: &str,
    mut facts: SchemaFacts,
    limits: &Limits,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    inspect_script(text, &mut facts, limits, |line, statement, outcome| {
        findings.push(Finding {
            line,
            statement: statement.to_owned(),
            verdict: verdict(outcome.map(|inspected| inspected.kind)),
        });
    })?;
    Ok(findings)
}

fn verdict(outcome: Result<Kind>) -> Verdict {
    match outcome {
        Ok(kind) => Verdict::Passes(kind),
        Err(Error::Refused { reason, message }) => Verdict::Refused { reason, message },
        Err(other) => Verdict::Fails {
            message: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(script: &str) -> Vec<(usize, Option<&'static str>)> {
        let findings = check_script(script).unwrap();
        let word = |verdict| match verdict {
            Verdict::Passes(_) => None,
            Verdict::Refused { reason, .. } => Some(reason),
            Verdict::Fails { .. } => Some("fails"),
        };
        findings
            .into_iter()
            .map(|f| (f.line, word(f.verdict)))
            .collect()
    }

    #[test]
    fn each_statement_is_judged_with_the_schema_before_it() {
        let script = "CREATE TABLE a(x);\nCREATE TABLE b(y UNIQUE);\nREPLACE INTO a VALUES (1);\n\
            CREATE TRIGGER r AFTER INSERT ON a\nBEGIN UPDATE b SET y = 1; END;\n\
            REPLACE INTO a VALUES (1);\nDROP TRIGGER r;\nREPLACE INTO a VALUES (1);";
        let expected = [
            (1, None),
            (2, None),
            (3, None),
            (4, None),
            (6, Some("replace_fires_update")),
            (7, None),
            (8, None),
        ];
        assert_eq!(verdicts(script), expected);
    }

    #[test]
    fn a_refused_object_does_not_exist_for_what_follows() {
        let script = "CREATE TABLE a(x UNIQUE ON CONFLICT REPLACE);\nVACUUM;\nSELECT 'x";
        let expected = [
            (1, Some("on_conflict_replace")),
            (2, Some("vacuum")),
            (3, Some("fails")),
        ];
        assert_eq!(verdicts(script), expected);
    }
}
