//! What meeting other nodes means for this one. Pure.
//!
//! Static roles know no quorum: nothing prevents two nodes from leading while they cannot see
//! each other. What can be done, and is done here, is to notice it when they meet, and to stop
//! before more is written on two histories. The evidence is the openings alone
//! (see `tidegate_replica::history`): an opening is written once, by one node, with bytes that
//! nobody else has.
//!
//! | a node of this cluster has | then this one |
//! |---|---|
//! | seen a later epoch | is **fenced**: it was replaced, and follows when it is told to |
//! | in this epoch an opening that this node lacks, and lacks this node's | is in **conflict**: two nodes lead, and neither may write until a person decides |
//! | everything of this node, and more in this epoch | was **rolled back**: it lost what others hold, and must not write over it |
//!
//! A verdict is sticky, because either side may go out of sight again.
//!
//! A node of another cluster is told of, and left alone: an address may be mistaken. Unless it
//! leads. Then two nodes that are to be one cluster each began one of their own, and the one
//! with the lower epoch stops, or both when the epochs are equal: so a wiped node that was
//! told to lead once more does not stop the cluster it belonged to.

use tidegate_engine::Seq;
use tidegate_replica::history::{History, Opening, Standing};
use tidegate_replica::ids::{BootId, ClusterId, Epoch, NodeId};
use tidegate_replica::wire::Description;

use crate::peers::{Sighting, Sightings};

/// Where this node stands.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its name.
    pub node: NodeId,
    /// This run of the process.
    pub boot: BootId,
    /// Cluster, openings, head.
    pub standing: Standing,
}

/// Whether this node may lead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Verdict {
    /// Nothing that was seen speaks against it.
    #[default]
    Free,
    /// A later epoch was opened: this node was replaced.
    Fenced(Objection),
    /// Two nodes lead in one epoch.
    Conflict(Objection),
    /// Others hold what this node has lost.
    RolledBack(Objection),
}

/// What stands against this node's leading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The epoch in question.
    pub epoch: Epoch,
    /// Who opened it.
    pub leader: String,
    /// What happened and what to do, for people.
    pub text: String,
}

/// The node to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its name.
    pub node: NodeId,
    /// Where it is dialled.
    pub url: String,
    /// The epoch in which it leads.
    pub epoch: Epoch,
}

/// Everything that follows from what was seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Whether this node may lead.
    pub verdict: Verdict,
    /// Whom to follow, if somebody leads.
    pub leader: Option<Leader>,
    /// What is wrong with a peer, by address.
    pub problems: Vec<(String, String)>,
    /// A peer that holds data, in words: an empty node must not begin a cluster beside it.
    pub data_elsewhere: Option<String>,
}

/// Judges all that was seen.
pub fn judge(own: &Own, seen: &Sightings) -> Findings {
    let mut findings = Findings::default();
    for sighting in seen.peers.values() {
        if let Some(problem) = problem_of(own, sighting) {
            findings.problems.push((sighting.url.clone(), problem));
        }
        look_at(own, sighting, &mut findings);
    }
    if let Some(met) = &seen.met {
        let verdict = compare(own, met.node.as_str(), &met.standing);
        findings.verdict = graver(std::mem::take(&mut findings.verdict), verdict);
    }
    findings
}

/// What is wrong with a peer itself.
fn problem_of(own: &Own, sighting: &Sighting) -> Option<String> {
    let peer = sighting.described.as_ref()?;
    let url = &sighting.url;
    if peer.boot == Some(own.boot) {
        return Some(format!(
            "{url} is this node itself: cluster.peers lists the other nodes only"
        ));
    }
    if peer.node == own.node {
        return Some(format!(
            "{url} is another node that calls itself {} too: give each node its own node.id",
            own.node
        ));
    }
    if let Some(name) = sighting
        .name
        .as_deref()
        .filter(|n| *n != peer.node.as_str())
    {
        return Some(format!(
            "{url} calls itself {}, not {name} as in cluster.peers: correct the one or the other",
            peer.node
        ));
    }
    match (own.standing.cluster, peer.cluster) {
        (Some(ours), Some(theirs)) if ours != theirs => Some(format!(
            "{} at {url} belongs to another cluster ({theirs}, this node to {ours}): nothing is \
             exchanged with it. Correct cluster.peers, or start the one that is wrong with an \
             empty directory",
            peer.node
        )),
        _ => None,
    }
}

fn look_at(own: &Own, sighting: &Sighting, findings: &mut Findings) {
    let Some(peer) = &sighting.described else {
        return;
    };
    if peer.boot == Some(own.boot) || !peer.is_open {
        return;
    }
    if let Some(cluster) = peer.cluster {
        let found = format!(
            "{} at {} holds data of cluster {cluster}",
            peer.node, sighting.url
        );
        findings.data_elsewhere.get_or_insert(found);
    }
    if peer.cluster.is_none() {
        return;
    }
    if is_of_another(own.standing.cluster, peer.cluster) {
        let verdict = of_stranger(own, sighting, peer);
        findings.verdict = graver(std::mem::take(&mut findings.verdict), verdict);
        return;
    }
    let standing = Standing {
        cluster: peer.cluster,
        history: peer.history.clone(),
        seq: peer.head,
    };
    let verdict = compare(own, peer.node.as_str(), &standing);
    findings.verdict = graver(std::mem::take(&mut findings.verdict), verdict);
    if leads(&peer.role, &peer.state) && peer.node != own.node {
        let candidate = Leader {
            node: peer.node.clone(),
            url: sighting.url.clone(),
            epoch: peer.history.epoch(),
        };
        let present = findings.leader.as_ref().map(|leader| leader.epoch);
        if present.is_none_or(|epoch| candidate.epoch > epoch) {
            findings.leader = Some(candidate);
        }
    }
    let behind =
        findings.leader.as_ref().map(|leader| leader.epoch) < Some(own.standing.history.epoch());
    if behind {
        // A primary of an earlier epoch than this node has seen was replaced and does not know.
        findings.leader = None;
    }
}

/// What a node of another cluster, listed as one of this cluster's, says about this node.
fn of_stranger(own: &Own, sighting: &Sighting, peer: &Description) -> Verdict {
    let ours = own.standing.history.epoch();
    if !leads(&peer.role, &peer.state) || peer.history.epoch() < ours {
        return Verdict::Free;
    }
    Verdict::Conflict(Objection {
        epoch: ours,
        leader: peer.node.to_string(),
        text: two_clusters(own, sighting, peer),
    })
}

fn is_of_another(ours: Option<ClusterId>, theirs: Option<ClusterId>) -> bool {
    matches!((ours, theirs), (Some(ours), Some(theirs)) if ours != theirs)
}

/// True when a node that would lead has heard all it should hear before it does.
///
/// Of two empty nodes that are both told to lead, and start together, the one whose name
/// comes first does not wait for the other to decide; so the other finds a cluster to join.
pub fn knows_enough(own: &Own, seen: &Sightings) -> bool {
    let is_empty = own.standing.history.last().is_none();
    seen.peers.values().all(|sighting| {
        let Some(peer) = sighting.described.as_ref().filter(|peer| peer.is_open) else {
            return false;
        };
        let is_undecided = peer.role == "unknown" && peer.cluster.is_none();
        !(is_empty && is_undecided && peer.node < own.node)
    })
}

/// By its own words: it takes writes.
pub fn leads(role: &str, state: &str) -> bool {
    role == "primary" && !matches!(state, "fenced" | "config_conflict")
}

/// What one other node's history says about this node's.
pub fn compare(own: &Own, name: &str, theirs: &Standing) -> Verdict {
    let (Some(ours), Some(their_last)) = (own.standing.history.last(), theirs.history.last())
    else {
        return Verdict::Free;
    };
    if is_of_another(own.standing.cluster, theirs.cluster) {
        return Verdict::Free;
    }
    if their_last.epoch > ours.epoch {
        return Verdict::Fenced(fenced(own, their_last));
    }
    if their_last.epoch < ours.epoch {
        return Verdict::Free;
    }
    let knows = |history: &History, opening: &Opening| {
        history.openings().iter().any(|o| o.nonce == opening.nonce)
    };
    if their_last.nonce == ours.nonce {
        return match theirs.seq > own.standing.seq {
            true => Verdict::RolledBack(rolled_back(own, name, theirs.seq)),
            false => Verdict::Free,
        };
    }
    if knows(&theirs.history, ours) {
        return Verdict::RolledBack(rolled_back(own, name, theirs.seq));
    }
    let oldest = own.standing.history.openings().first();
    let pruned = oldest.is_some_and(|oldest| their_last.first_seq < oldest.first_seq);
    if pruned || knows(&own.standing.history, their_last) {
        return Verdict::Free;
    }
    match their_last.node == ours.node {
        // One node opened twice from one point: a backup of it was put in its place.
        true => Verdict::RolledBack(rolled_back(own, name, theirs.seq)),
        false => Verdict::Conflict(conflict(own, ours, their_last)),
    }
}

fn fenced(own: &Own, theirs: &Opening) -> Objection {
    Objection {
        epoch: theirs.epoch,
        leader: theirs.node.clone(),
        text: format!(
            "{} was replaced: {} leads in epoch {}, this node's history ends in epoch {}. Send \
             writes to {}; when this node is started again it follows it",
            own.node,
            theirs.node,
            theirs.epoch,
            own.standing.history.epoch(),
            theirs.node,
        ),
    }
}

fn conflict(own: &Own, ours: &Opening, theirs: &Opening) -> Objection {
    // The same words on both sides.
    let mut sides = [ours, theirs];
    sides.sort_by_key(|opening| opening.nonce);
    let [a, b] = sides;
    Objection {
        epoch: ours.epoch,
        leader: theirs.node.clone(),
        text: format!(
            "{} (at {}) and {} (at {}) both opened epoch {}, so both refuse writes. Decide whose \
             data counts; stop the other, move its data directory away and start it empty, as a \
             replica; then start the first one again (this is {})",
            a.node, a.first_seq, b.node, b.first_seq, ours.epoch, own.node,
        ),
    }
}

fn two_clusters(own: &Own, sighting: &Sighting, peer: &Description) -> String {
    let cluster = |id: Option<ClusterId>| id.map_or_else(String::new, |id| id.to_string());
    format!(
        "two nodes that list each other lead two clusters: {} cluster {}, {} at {} cluster {}. If \
         {} does not belong here, correct cluster.peers and start this node again. Else decide \
         whose data counts; stop the other, move its data directory away and start it empty, as \
         a replica; then start the first one again",
        own.node,
        cluster(own.standing.cluster),
        peer.node,
        sighting.url,
        cluster(peer.cluster),
        peer.node,
    )
}

fn rolled_back(own: &Own, name: &str, seq: Seq) -> Objection {
    Objection {
        epoch: own.standing.history.epoch(),
        leader: name.to_owned(),
        text: format!(
            "{name} holds position {seq} of epoch {}, this node only {}: its data was rolled back \
             (an old backup, a lost disk). Nothing is written over what {name} holds. Put the \
             newer data back in place, or start {name} empty to accept the loss; then start this \
             node again",
            own.standing.history.epoch(),
            own.standing.seq,
        ),
    }
}

/// A later epoch settles who leads, so it outweighs a conflict in the one before.
fn graver(a: Verdict, b: Verdict) -> Verdict {
    if b.outweighs(&a) { b } else { a }
}

impl Verdict {
    /// True when this one is to be told instead of the other.
    pub fn outweighs(&self, other: &Self) -> bool {
        self.weight() > other.weight()
    }

    fn weight(&self) -> (u8, Epoch) {
        match self {
            Self::Free => (0, Epoch::default()),
            Self::RolledBack(objection) => (1, objection.epoch),
            Self::Conflict(objection) => (2, objection.epoch),
            Self::Fenced(objection) => (3, objection.epoch),
        }
    }

    /// What stands against this node's leading.
    pub fn objection(&self) -> Option<&Objection> {
        match self {
            Self::Free => None,
            Self::Fenced(objection) | Self::Conflict(objection) | Self::RolledBack(objection) => {
                Some(objection)
            }
        }
    }
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod tests;
