//! What this node is: decided by its history, and by the configuration only where there is
//! none. Pure.
//!
//! A role in a file is a wish from the past. A node that was the primary and comes back must
//! not follow because a file says so, nor must a replica begin to write; so the configured
//! role counts for an empty data directory only, and afterwards the newest opening decides:
//! a node is the primary exactly if that opening names it.

use tidegate_engine::Opening;

use crate::config::RoleSetting;

/// What a node is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its role.
    pub role: RoleSetting,
    /// The configuration says otherwise: to be warned of at each start.
    pub warning: Option<String>,
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

fn word(role: RoleSetting) -> &'static str {
    match role {
        RoleSetting::Primary => "primary",
        RoleSetting::Replica => "replica",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_engine::Seq;

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
        assert!(
            decide(RoleSetting::Primary, "n1", &opened_by("n1"))
                .warning
                .is_none()
        );
    }
}
