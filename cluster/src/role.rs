//! What this node is: decided by its history, and by the configuration only where there is
//! none. Pure.
//!
//! A role in a file is a wish from the past. A node that was the primary and comes back must
//! not follow because a file says so, nor must a replica begin to write; so the configured
//! role counts for an empty data directory only, and afterwards the newest opening decides:
//! a node is the primary exactly if that opening names it.
//!
//! What it would be by itself is not the last word: before it leads it asks its peers, and
//! what they say may keep it from doing so ([`settle`]).

use tidegate_engine::Opening;

use crate::config::RoleSetting;
use crate::meeting::{Findings, Verdict};

/// What a node is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its role.
    pub role: RoleSetting,
    /// The configuration says otherwise: to be warned of at each start.
    pub warning: Option<String>,
}

/// How a node that would be the primary begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beginning {
    /// It leads.
    Lead,
    /// It follows instead, for this reason.
    Follow(String),
    /// It only reads until an operator decides.
    Stand(Verdict),
}

/// Decides from the node's own openings.
pub fn decide(configured: RoleSetting, node: &str, openings: &[Opening]) -> Decision {
    let Some(newest) = openings.last() else {
        return Decision {
            role: configured,
            warning: None,
        };
    };
    let role = match newest.node == node {
        true => RoleSetting::Primary,
        false => RoleSetting::Replica,
    };
    let warning = (role != configured).then(|| {
        format!(
            "the configured role does not count: the history's newest opening (epoch {}) is of \
             node {}, so this node is the {}",
            newest.epoch,
            newest.node,
            word(role)
        )
    });
    Decision { role, warning }
}

/// Decides what a node that would be the primary does with what its peers have said.
pub fn settle(is_empty: bool, findings: &Findings) -> Beginning {
    if let (true, Some(found)) = (is_empty, &findings.data_elsewhere) {
        return Beginning::Follow(format!(
            "this node is empty and told to be the primary, but {found}: it begins no cluster of \
             its own beside it and follows instead. Set cluster.role to replica, or correct \
             cluster.peers"
        ));
    }
    match &findings.verdict {
        Verdict::Free => Beginning::Lead,
        Verdict::Fenced(objection) => Beginning::Follow(objection.text.clone()),
        verdict => Beginning::Stand(verdict.clone()),
    }
}

fn word(role: RoleSetting) -> &'static str {
    match role {
        RoleSetting::Primary => "primary",
        RoleSetting::Replica => "replica",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Seq;
    use tidegate_replica::ids::Epoch;

    use super::*;
    use crate::meeting::Objection;

    fn opened_by(node: &str) -> Vec<Opening> {
        vec![Opening {
            epoch: 3,
            nonce: [7; 16],
            first_seq: Seq::new(1),
            node: node.to_owned(),
            opened_ms: 0,
            why: "start".to_owned(),
        }]
    }

    fn objection() -> Objection {
        Objection {
            epoch: Epoch::new(4),
            leader: "n2".to_owned(),
            text: "n2 leads".to_owned(),
        }
    }

    #[test]
    fn an_empty_node_becomes_what_it_is_told() {
        for role in [RoleSetting::Primary, RoleSetting::Replica] {
            let decision = decide(role, "n1", &[]);
            assert_eq!((decision.role, decision.warning), (role, None));
        }
    }

    #[test]
    fn the_history_decides_and_says_so_when_the_configuration_differs() {
        let returned = decide(RoleSetting::Replica, "n1", &opened_by("n1"));
        assert_eq!(returned.role, RoleSetting::Primary);
        assert!(returned.warning.is_some_and(|w| w.contains("epoch 3")));
        let usurper = decide(RoleSetting::Primary, "n2", &opened_by("n1"));
        assert_eq!(usurper.role, RoleSetting::Replica);
        assert!(usurper.warning.is_some());
        let expected = decide(RoleSetting::Primary, "n1", &opened_by("n1"));
        assert!(expected.warning.is_none());
    }

    #[test]
    fn an_empty_node_begins_no_cluster_beside_data() {
        let beside = Findings {
            data_elsewhere: Some("n2 at http://n2:9070 holds data".to_owned()),
            ..Findings::default()
        };
        let Beginning::Follow(why) = settle(true, &beside) else {
            panic!("it must not lead");
        };
        assert!(why.contains("n2 at http://n2:9070"), "{why}");
        // A node with data of its own is the primary that those peers follow.
        assert_eq!(settle(false, &beside), Beginning::Lead);
        assert_eq!(settle(true, &Findings::default()), Beginning::Lead);
    }

    #[test]
    fn a_node_that_was_replaced_follows_and_one_in_conflict_stands() {
        let with = |verdict| Findings {
            verdict,
            ..Findings::default()
        };
        let fenced = settle(false, &with(Verdict::Fenced(objection())));
        assert_eq!(fenced, Beginning::Follow("n2 leads".to_owned()));
        for verdict in [
            Verdict::Conflict(objection()),
            Verdict::RolledBack(objection()),
        ] {
            let found = settle(false, &with(verdict.clone()));
            assert_eq!(found, Beginning::Stand(verdict));
        }
    }
}
