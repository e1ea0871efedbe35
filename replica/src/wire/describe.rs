//! What a node says of itself.

use tidegate_engine::Seq;
use tidegate_proto::peer::v1 as pb;

use super::compare::put_verdict;
use super::{cluster, history, put_cluster, put_history, put_text, seq};
use crate::error::Result;
use crate::history::History;
use crate::ids::{BootId, ClusterId, NodeId};
use crate::proof::Verdict;

/// Followers that a description names.
const FOLLOWERS_MAX: usize = 256;

/// A node, as it describes itself.
#[derive(Debug, Clone)]
pub struct Description {
    /// Version of the daemon.
    pub version: String,
    /// The cluster; `None` without data.
    pub cluster: Option<ClusterId>,
    /// Its name.
    pub node: NodeId,
    /// Its run of the process; `None` from a node that does not say.
    pub boot: Option<BootId>,
    /// Its database is open, so what it says of it is so. Without, nothing is known.
    pub is_open: bool,
    /// primary, replica, witness.
    pub role: String,
    /// One word of the list of states.
    pub state: String,
    /// One word of the list of reasons.
    pub reason: String,
    /// For people.
    pub detail: String,
    /// Its openings.
    pub history: History,
    /// Newest position.
    pub head: Seq,
    /// Positions below cannot be fed from here.
    pub floor: Seq,
    /// Nodes that follow it.
    pub followers: Vec<FollowerDescription>,
    /// The node it follows.
    pub source: Option<NodeId>,
    /// Its own proof, if it is a replica.
    pub proof: Option<ProofDescription>,
    /// Its clock, milliseconds.
    pub clock_ms: u64,
}

/// A follower, as its source describes it.
#[derive(Debug, Clone)]
pub struct FollowerDescription {
    /// Its name.
    pub node: NodeId,
    /// A stream is open.
    pub connected: bool,
    /// Sent.
    pub sent: Seq,
    /// Received.
    pub received: Seq,
    /// Applied.
    pub applied: Seq,
    /// Milliseconds since it was heard.
    pub heard_ago_ms: u64,
    /// Age of the oldest change it lacks, milliseconds.
    pub lag_ms: u64,
    /// Its proof.
    pub proof: Option<ProofDescription>,
}

/// A proof, or its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofDescription {
    /// Verdict of the last pass; `None` before the first.
    pub verdict: Option<Verdict>,
    /// Position at its end.
    pub at_seq: Seq,
    /// Milliseconds since.
    pub age_ms: u64,
    /// It counts.
    pub valid: bool,
    /// Why not, or what differs.
    pub text: String,
}

impl Description {
    /// Checks an answer.
    pub fn decode(reply: pb::DescribeReply) -> Result<Self> {
        let followers = reply.followers.into_iter().take(FOLLOWERS_MAX);
        Ok(Self {
            version: reply.version,
            cluster: cluster(&reply.cluster_id)?,
            node: NodeId::new(reply.node_id)?,
            boot: <[u8; 16]>::try_from(&*reply.boot_id).ok().map(BootId::new),
            is_open: reply.database_open,
            role: reply.role,
            state: reply.state,
            reason: reply.reason,
            detail: reply.detail,
            history: history(reply.history)?,
            head: seq("head_seq", reply.head_seq)?,
            floor: seq("floor_seq", reply.floor_seq)?,
            followers: followers.map(follower).collect::<Result<_>>()?,
            source: match reply.source_node_id {
                none if none.is_empty() => None,
                name => Some(NodeId::new(name)?),
            },
            proof: reply.proof.map(proof).transpose()?,
            clock_ms: reply.clock_ms,
        })
    }

    /// As a message.
    pub fn encode(&self) -> pb::DescribeReply {
        let followers = self.followers.iter().take(FOLLOWERS_MAX);
        pb::DescribeReply {
            protocol_version: tidegate_proto::PROTOCOL_VERSION,
            version: put_text(&self.version),
            cluster_id: put_cluster(self.cluster),
            node_id: self.node.to_string(),
            role: put_text(&self.role),
            state: put_text(&self.state),
            reason: put_text(&self.reason),
            detail: put_text(&self.detail),
            history: put_history(&self.history),
            head_seq: self.head.get(),
            floor_seq: self.floor.get(),
            followers: followers.map(put_follower).collect(),
            source_node_id: self
                .source
                .as_ref()
                .map(NodeId::to_string)
                .unwrap_or_default(),
            proof: self.proof.as_ref().map(put_proof),
            clock_ms: self.clock_ms,
            boot_id: self
                .boot
                .map_or_else(Vec::new, |boot| boot.bytes().to_vec()),
            database_open: self.is_open,
        }
    }
}

fn follower(view: pb::FollowerView) -> Result<FollowerDescription> {
    Ok(FollowerDescription {
        node: NodeId::new(view.node_id)?,
        connected: view.connected,
        sent: seq("followers.sent_seq", view.sent_seq)?,
        received: seq("followers.received_seq", view.received_seq)?,
        applied: seq("followers.applied_seq", view.applied_seq)?,
        heard_ago_ms: view.heard_ago_ms,
        lag_ms: view.lag_ms,
        proof: view.proof.map(proof).transpose()?,
    })
}

fn put_follower(follower: &FollowerDescription) -> pb::FollowerView {
    pb::FollowerView {
        node_id: follower.node.to_string(),
        connected: follower.connected,
        sent_seq: follower.sent.get(),
        received_seq: follower.received.get(),
        applied_seq: follower.applied.get(),
        heard_ago_ms: follower.heard_ago_ms,
        lag_ms: follower.lag_ms,
        proof: follower.proof.as_ref().map(put_proof),
    }
}

fn proof(proof: pb::Proof) -> Result<ProofDescription> {
    let verdict = match proof.verdict() {
        pb::Verdict::Unspecified => None,
        pb::Verdict::Equal => Some(Verdict::Equal),
        pb::Verdict::Diverged => Some(Verdict::Diverged),
        pb::Verdict::Inconclusive => Some(Verdict::Inconclusive),
    };
    Ok(ProofDescription {
        verdict,
        at_seq: seq("proof.at_seq", proof.at_seq)?,
        age_ms: proof.age_ms,
        valid: proof.valid,
        text: proof.text,
    })
}

fn put_proof(proof: &ProofDescription) -> pb::Proof {
    let verdict = proof.verdict.map_or(pb::Verdict::Unspecified, put_verdict);
    pb::Proof {
        verdict: verdict.into(),
        at_seq: proof.at_seq.get(),
        age_ms: proof.age_ms,
        valid: proof.valid,
        text: super::shorten(&proof.text, 512),
    }
}
