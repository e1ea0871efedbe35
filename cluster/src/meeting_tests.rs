//! Every row of the table at the head of `meeting`, from both sides where there are two.

use std::sync::Arc;
use std::time::Instant;

use tidegate_replica::ids::Nonce;
use tidegate_replica::service::Met;
use tidegate_replica::wire::Description;

use super::*;

const OURS: [u8; 16] = [1; 16];

/// Openings as (epoch, nonce, first position, node).
fn history(openings: &[(u64, u8, u64, &str)]) -> History {
    let opening = |&(epoch, nonce, first, node): &(u64, u8, u64, &str)| Opening {
        epoch: Epoch::new(epoch),
        nonce: Nonce::new([nonce; 16]),
        first_seq: Seq::new(first),
        node: node.to_owned(),
        opened_ms: 0,
        why: "start".to_owned(),
    };
    History::new(openings.iter().map(opening).collect()).unwrap()
}

fn own(openings: &[(u64, u8, u64, &str)], seq: u64) -> Own {
    let cluster = (!openings.is_empty()).then(|| ClusterId::from_bytes(OURS));
    Own {
        node: NodeId::new("n1").unwrap(),
        boot: BootId::new([1; 16]),
        standing: Standing {
            cluster,
            history: history(openings),
            seq: Seq::new(seq),
        },
    }
}

fn peer(node: &str, role: &str, openings: &[(u64, u8, u64, &str)], seq: u64) -> Description {
    Description {
        version: String::new(),
        cluster: (!openings.is_empty()).then(|| ClusterId::from_bytes(OURS)),
        node: NodeId::new(node).unwrap(),
        boot: Some(BootId::new([9; 16])),
        is_open: true,
        role: role.to_owned(),
        state: "ready".to_owned(),
        reason: "none".to_owned(),
        detail: String::new(),
        history: history(openings),
        head: Seq::new(seq),
        floor: Seq::ZERO,
        followers: Vec::new(),
        source: None,
        proof: None,
        clock_ms: 0,
    }
}

fn seen(peers: Vec<Description>) -> Sightings {
    let mut seen = Sightings::default();
    for peer in peers {
        let url = format!("http://{}:9070", peer.node);
        let sighting = Sighting {
            url: url.clone(),
            name: Some(peer.node.to_string()),
            described: Some(Arc::new(peer)),
            heard: Some(Instant::now()),
            error: None,
        };
        seen.peers.insert(url, sighting);
    }
    seen
}

fn verdict(own: &Own, peer: Description) -> Verdict {
    judge(own, &seen(vec![peer])).verdict
}

#[test]
fn a_replica_that_is_level_behind_or_away_speaks_against_nothing() {
    let own = own(&[(1, 1, 1, "n1"), (1, 2, 9, "n1")], 20);
    for (openings, seq) in [
        (vec![], 0),
        (vec![(1, 1, 1, "n1")], 5),
        (vec![(1, 1, 1, "n1"), (1, 2, 9, "n1")], 20),
    ] {
        assert_eq!(
            verdict(&own, peer("n2", "replica", &openings, seq)),
            Verdict::Free
        );
    }
    let silent = Sightings::of(&[("n2".into(), "http://n2:9070".into())], None);
    assert_eq!(judge(&own, &silent), Findings::default());
}

#[test]
fn two_nodes_that_opened_one_epoch_are_in_conflict_and_say_the_same() {
    let shared = (1, 1, 1, "n3");
    let (left, right) = ([shared, (2, 2, 10, "n1")], [shared, (2, 3, 12, "n2")]);
    let ours = verdict(&own(&left, 15), peer("n2", "primary", &right, 14));
    let Verdict::Conflict(objection) = &ours else {
        panic!("{ours:?}");
    };
    for word in [
        "n1 (at 10)",
        "n2 (at 12)",
        "epoch 2",
        "Decide whose data counts",
    ] {
        assert!(objection.text.contains(word), "{word}: {}", objection.text);
    }
    let mut other = own(&right, 14);
    other.node = NodeId::new("n2").unwrap();
    let theirs = verdict(&other, peer("n1", "primary", &left, 15));
    let Verdict::Conflict(theirs) = &theirs else {
        panic!("{theirs:?}");
    };
    let before_self = |text: &str| text.split("(this is").next().unwrap().to_owned();
    assert_eq!(before_self(&theirs.text), before_self(&objection.text));
    // Their replica carries the same evidence.
    let follower = verdict(&own(&left, 15), peer("n4", "replica", &right, 14));
    assert!(matches!(follower, Verdict::Conflict(_)));
}

#[test]
fn a_later_epoch_fences_whoever_brings_it_and_names_who_leads() {
    let own = own(&[(1, 1, 1, "n1")], 9);
    let later = [(1, 1, 1, "n1"), (2, 2, 8, "n2")];
    for role in ["primary", "replica"] {
        let found = verdict(&own, peer("n3", role, &later, 9));
        let Verdict::Fenced(objection) = &found else {
            panic!("{found:?}");
        };
        assert_eq!(
            (objection.leader.as_str(), objection.epoch.get()),
            ("n2", 2)
        );
        assert!(
            objection.text.contains("n2 leads in epoch 2"),
            "{}",
            objection.text
        );
    }
}

#[test]
fn an_earlier_epoch_is_the_others_problem() {
    let own = own(&[(1, 1, 1, "n2"), (2, 2, 8, "n1")], 9);
    let earlier = peer("n2", "primary", &[(1, 1, 1, "n2"), (1, 3, 8, "n2")], 99);
    let findings = judge(&own, &seen(vec![earlier]));
    assert_eq!((findings.verdict, findings.leader), (Verdict::Free, None));
}

#[test]
fn whoever_lost_what_others_hold_was_rolled_back() {
    let own = own(&[(1, 1, 1, "n1"), (1, 5, 7, "n1")], 9);
    // Later positions under the same opening, a later opening of its own, and its own opening
    // anew from a backup.
    for openings in [
        vec![(1, 1, 1, "n1"), (1, 5, 7, "n1")],
        vec![(1, 1, 1, "n1"), (1, 5, 7, "n1"), (1, 6, 12, "n1")],
        vec![(1, 1, 1, "n1"), (1, 2, 6, "n1")],
    ] {
        let found = verdict(&own, peer("n2", "replica", &openings, 14));
        assert!(matches!(found, Verdict::RolledBack(_)), "{found:?}");
    }
}

#[test]
fn what_was_pruned_away_proves_nothing() {
    let own = own(&[(1, 4, 50, "n1"), (1, 5, 60, "n1")], 70);
    let old = peer("n2", "replica", &[(1, 1, 1, "n1"), (1, 2, 20, "n1")], 30);
    assert_eq!(verdict(&own, old), Verdict::Free);
}

#[test]
fn another_cluster_is_told_and_left_alone_unless_it_leads() {
    let own = own(&[(2, 1, 1, "n1")], 9);
    let stranger = |role: &str, epoch| {
        let mut stranger = peer("n2", role, &[(epoch, 2, 3, "n2")], 99);
        stranger.cluster = Some(ClusterId::from_bytes([8; 16]));
        judge(&own, &seen(vec![stranger]))
    };
    for (role, epoch) in [("replica", 7), ("replica", 2), ("primary", 1)] {
        let findings = stranger(role, epoch);
        assert_eq!(
            (&findings.verdict, &findings.leader),
            (&Verdict::Free, &None)
        );
        let problem = &findings.problems[0].1;
        assert!(problem.contains("another cluster"), "{problem}");
    }
    for epoch in [2, 7] {
        let findings = stranger("primary", epoch);
        let Verdict::Conflict(objection) = &findings.verdict else {
            panic!("{findings:?}");
        };
        assert!(
            objection.text.contains("two clusters: n1 "),
            "{}",
            objection.text
        );
        assert_eq!(findings.leader, None);
    }
}

#[test]
fn itself_and_its_own_name_are_told_apart() {
    let own = own(&[(1, 1, 1, "n1")], 9);
    let mut itself = peer("n1", "primary", &[(1, 1, 1, "n1")], 9);
    let twin = judge(&own, &seen(vec![itself.clone()]));
    assert!(
        twin.problems[0].1.contains("calls itself n1 too"),
        "{twin:?}"
    );
    itself.boot = Some(own.boot);
    let findings = judge(&own, &seen(vec![itself]));
    assert!(
        findings.problems[0].1.contains("this node itself"),
        "{findings:?}"
    );
    assert_eq!(findings.data_elsewhere, None);
    assert_eq!(findings.leader, None);
}

#[test]
fn a_name_that_differs_from_the_configured_one_is_told() {
    let own = own(&[(1, 1, 1, "n1")], 9);
    let mut seen = seen(vec![peer("n2", "replica", &[], 0)]);
    seen.peers.values_mut().next().unwrap().name = Some("n3".to_owned());
    let problem = &judge(&own, &seen).problems[0].1;
    assert!(problem.contains("calls itself n2, not n3"), "{problem}");
}

#[test]
fn an_empty_node_sees_that_data_is_elsewhere_but_only_where_it_is_known() {
    let empty = own(&[], 0);
    let mut holder = peer("n2", "replica", &[(1, 1, 1, "n3")], 9);
    let found = judge(&empty, &seen(vec![holder.clone()])).data_elsewhere;
    assert!(found.is_some_and(|text| text.contains("n2 at http://n2:9070")));
    assert_eq!(
        judge(&empty, &seen(vec![peer("n2", "replica", &[], 0)])).data_elsewhere,
        None
    );
    holder.is_open = false;
    assert_eq!(judge(&empty, &seen(vec![holder])).data_elsewhere, None);
}

#[test]
fn the_leader_is_the_primary_of_the_highest_epoch_that_takes_writes() {
    let own = own(&[(1, 1, 1, "n2")], 9);
    let old = peer("n2", "primary", &[(1, 1, 1, "n2")], 9);
    let new = peer("n3", "primary", &[(1, 1, 1, "n2"), (2, 2, 10, "n3")], 12);
    let leader = |peers| judge(&own, &seen(peers)).leader.map(|l| l.node.to_string());
    assert_eq!(leader(vec![old.clone()]).as_deref(), Some("n2"));
    assert_eq!(
        leader(vec![old.clone(), new.clone()]).as_deref(),
        Some("n3")
    );
    for state in ["fenced", "config_conflict"] {
        let mut stopped = new.clone();
        stopped.state = state.to_owned();
        assert_eq!(leader(vec![stopped]), None, "{state}");
    }
    assert_eq!(
        leader(vec![peer("n3", "replica", &[(1, 1, 1, "n2")], 9)]),
        None
    );
    // An empty node follows whoever leads.
    let empty = Own {
        standing: Standing {
            cluster: None,
            history: History::default(),
            seq: Seq::ZERO,
        },
        ..own
    };
    let leader = judge(&empty, &seen(vec![old])).leader;
    assert_eq!(leader.map(|l| l.url).as_deref(), Some("http://n2:9070"));
}

#[test]
fn a_follower_that_was_turned_away_is_evidence_too() {
    let own = own(&[(1, 1, 1, "n1")], 9);
    let met = Met {
        node: NodeId::new("n3").unwrap(),
        standing: Standing {
            cluster: Some(ClusterId::from_bytes(OURS)),
            history: history(&[(1, 1, 1, "n1"), (2, 2, 8, "n2")]),
            seq: Seq::new(9),
        },
    };
    let seen = Sightings {
        met: Some(met),
        ..Sightings::default()
    };
    assert!(matches!(judge(&own, &seen).verdict, Verdict::Fenced(_)));
}

#[test]
fn the_gravest_verdict_counts() {
    let own = own(&[(1, 1, 1, "n1"), (2, 2, 5, "n1")], 9);
    let rival = peer("n2", "primary", &[(1, 1, 1, "n1"), (2, 3, 5, "n2")], 9);
    let winner = peer("n3", "primary", &[(1, 1, 1, "n1"), (3, 4, 5, "n3")], 9);
    let both = judge(&own, &seen(vec![rival, winner])).verdict;
    assert!(
        matches!(both, Verdict::Fenced(ref o) if o.leader == "n3"),
        "{both:?}"
    );
}

#[test]
fn a_node_knows_enough_when_every_peer_has_said_what_it_holds() {
    let holder = own(&[(1, 1, 1, "n1")], 9);
    let silent = Sightings::of(&[("n2".into(), "http://n2:9070".into())], None);
    assert!(!knows_enough(&holder, &silent));
    assert!(knows_enough(&holder, &Sightings::default()), "a node alone");
    let mut closed = peer("n2", "unknown", &[], 0);
    closed.is_open = false;
    assert!(!knows_enough(&holder, &seen(vec![closed])));
    assert!(knows_enough(
        &holder,
        &seen(vec![peer("n2", "unknown", &[], 0)])
    ));
}

#[test]
fn of_two_empty_nodes_the_first_by_name_need_not_wait_for_the_other() {
    let named = |name: &str| Own {
        node: NodeId::new(name).unwrap(),
        ..own(&[], 0)
    };
    let undecided = |name| seen(vec![peer(name, "unknown", &[], 0)]);
    assert!(knows_enough(&named("n1"), &undecided("n2")));
    assert!(!knows_enough(&named("n2"), &undecided("n1")));
    let decided = seen(vec![peer("n1", "replica", &[], 0)]);
    assert!(knows_enough(&named("n2"), &decided));
}
