//! Conditions of batch steps.

use serde::Deserialize;
use std::borrow::Cow;

/// Deepest nesting of a condition. Clients nest two or three deep.
const DEPTH_MAX: usize = 32;

/// When a step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// That step ran and succeeded.
    Ok(usize),
    /// That step failed or was skipped.
    Error(usize),
    /// The other is false.
    Not(Box<Condition>),
    /// All are true.
    And(Vec<Condition>),
    /// One is true.
    Or(Vec<Condition>),
    /// No transaction is open.
    IsAutocommit,
}

/// A condition as it is on the wire.
#[derive(Debug, Deserialize)]
pub struct WireCondition<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    step: Option<usize>,
    #[serde(borrow)]
    cond: Option<Box<WireCondition<'a>>>,
    #[serde(borrow)]
    conds: Option<Vec<WireCondition<'a>>>,
}

impl WireCondition<'_> {
    /// Checks the condition of step number `own`: it may only look at earlier steps.
    pub fn decode(&self, own: usize) -> Result<Condition, String> {
        self.decode_at(own, 0)
    }

    fn decode_at(&self, own: usize, depth: usize) -> Result<Condition, String> {
        if depth > DEPTH_MAX {
            return Err(format!("conditions nest deeper than {DEPTH_MAX}"));
        }
        let step = || match self.step {
            Some(step) if step < own => Ok(step),
            Some(step) => Err(format!(
                "the condition of step {own} refers to step {step}, which does not come before it"
            )),
            None => Err("a condition lacks `step`".to_owned()),
        };
        let all = || {
            let conds = self.conds.as_ref().ok_or("a condition lacks `conds`")?;
            let decoded = conds.iter().map(|cond| cond.decode_at(own, depth + 1));
            decoded.collect::<Result<Vec<_>, String>>()
        };
        match self.r#type.as_ref() {
            "ok" => step().map(Condition::Ok),
            "error" => step().map(Condition::Error),
            "not" => {
                let cond = self.cond.as_ref().ok_or("a condition lacks `cond`")?;
                Ok(Condition::Not(Box::new(cond.decode_at(own, depth + 1)?)))
            }
            "and" => all().map(Condition::And),
            "or" => all().map(Condition::Or),
            "is_autocommit" => Ok(Condition::IsAutocommit),
            other => Err(format!("`{other}` is not a type of condition")),
        }
    }
}

impl Condition {
    /// Evaluates it: `succeeded[n]` tells whether step n ran and succeeded.
    pub fn holds(&self, succeeded: &[bool], autocommit: bool) -> bool {
        let holds = |condition: &Self| condition.holds(succeeded, autocommit);
        match self {
            Self::Ok(step) => succeeded[*step],
            Self::Error(step) => !succeeded[*step],
            Self::Not(condition) => !holds(condition),
            Self::And(conditions) => conditions.iter().all(holds),
            Self::Or(conditions) => conditions.iter().any(holds),
            Self::IsAutocommit => autocommit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(json: &str, own: usize) -> Result<Condition, String> {
        let wire: WireCondition<'_> = serde_json::from_str(json).expect("an object");
        wire.decode(own)
    }

    #[test]
    fn conditions_look_only_at_earlier_steps() {
        assert_eq!(decode(r#"{"type":"ok","step":0}"#, 1), Ok(Condition::Ok(0)));
        assert!(decode(r#"{"type":"ok","step":1}"#, 1).is_err());
        assert!(decode(r#"{"type":"not","cond":{"type":"error","step":9}}"#, 3).is_err());
        assert!(decode(r#"{"type":"perhaps"}"#, 3).is_err());
        assert!(decode(r#"{"type":"and"}"#, 3).is_err());
    }

    #[test]
    fn they_are_evaluated_like_logic() {
        let truth = |json: &str| decode(json, 2).expect("valid").holds(&[true, false], true);
        assert!(truth(r#"{"type":"ok","step":0}"#));
        assert!(truth(r#"{"type":"error","step":1}"#));
        assert!(truth(r#"{"type":"and","conds":[]}"#));
        assert!(!truth(r#"{"type":"or","conds":[]}"#));
        assert!(!truth(r#"{"type":"not","cond":{"type":"is_autocommit"}}"#));
        assert!(truth(
            r#"{"type":"or","conds":[{"type":"ok","step":1},{"type":"is_autocommit"}]}"#
        ));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let mut json = r#"{"type":"is_autocommit"}"#.to_owned();
        for _ in 0..40 {
            json = format!(r#"{{"type":"not","cond":{json}}}"#);
        }
        assert!(decode(&json, 1).is_err());
    }
}
