//! The handshake: who follows, and what the source says to it.

use tidegate_engine::Seq;
use tidegate_proto::peer::v1 as pb;

use super::{cluster, history, parse_cluster, put_cluster, put_history, put_text, seq, sixteen};
use crate::error::{Error, Result};
use crate::history::{History, Refusal, SnapshotReason, Standing};
use crate::ids::{BootId, ClusterId, Epoch, NodeId};

/// A follower introduces itself.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Version of the protocol it speaks.
    pub protocol_version: u32,
    /// Its name.
    pub node: NodeId,
    /// Tells its runs apart.
    pub boot: BootId,
    /// Where it stands.
    pub standing: Standing,
}

/// The source's first word.
#[derive(Debug, Clone)]
pub enum Greeting {
    /// The stream begins.
    Accepted(Accepted),
    /// A snapshot first.
    SnapshotRequired(SnapshotReason, String),
    /// Not here.
    Refused(Refused),
}

/// The stream begins.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The cluster.
    pub cluster: ClusterId,
    /// The source's name.
    pub node: NodeId,
    /// The source's openings.
    pub history: History,
    /// Newest position of the source.
    pub head: Seq,
    /// Positions below cannot be fed.
    pub floor: Seq,
    /// Each side says something at least this often, milliseconds.
    pub heartbeat_interval_ms: u32,
    /// The source may write, or holds a valid proof.
    pub source_is_proven: bool,
}

/// Why not.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The reason.
    pub code: Refusal,
    /// For people.
    pub text: String,
    /// Epoch of the source.
    pub epoch: Epoch,
}

impl Hello {
    pub(super) fn decode(hello: pb::Hello) -> Result<Self> {
        let cluster = cluster(&hello.cluster_id)?;
        let history = history(hello.history)?;
        if cluster.is_none() && history.last().is_some() {
            return Err(Error::invalid(
                "cluster_id",
                "is empty although there is a history",
            ));
        }
        Ok(Self {
            protocol_version: hello.protocol_version,
            node: NodeId::new(hello.node_id)?,
            boot: BootId::new(sixteen("boot_id", &hello.boot_id)?),
            standing: Standing {
                cluster,
                history,
                seq: seq("applied_seq", hello.applied_seq)?,
            },
        })
    }

    /// The first message of a follower.
    pub fn encode(&self) -> pb::FollowerMessage {
        let hello = pb::Hello {
            protocol_version: self.protocol_version,
            cluster_id: put_cluster(self.standing.cluster),
            node_id: self.node.to_string(),
            history: put_history(&self.standing.history),
            applied_seq: self.standing.seq.get(),
            capabilities: Vec::new(),
            boot_id: self.boot.bytes().to_vec(),
        };
        pb::FollowerMessage {
            kind: Some(pb::follower_message::Kind::Hello(hello)),
        }
    }
}

impl Greeting {
    /// The first message of a source.
    pub fn encode(&self) -> pb::SourceMessage {
        use pb::source_message::Kind;
        let kind = match self {
            Self::Accepted(accepted) => Kind::Accepted(accepted.encode()),
            Self::SnapshotRequired(reason, text) => {
                Kind::SnapshotRequired(put_snapshot_required(*reason, text))
            }
            Self::Refused(refused) => Kind::Refused(refused.encode()),
        };
        pb::SourceMessage { kind: Some(kind) }
    }
}

impl Accepted {
    pub(super) fn decode(accepted: pb::Accepted) -> Result<Self> {
        let interval = accepted.heartbeat_interval_ms;
        if !(10..=600_000).contains(&interval) {
            return Err(Error::invalid(
                "heartbeat_interval_ms",
                format!("{interval} is not between 10 and 600,000"),
            ));
        }
        Ok(Self {
            cluster: parse_cluster(&accepted.cluster_id)?,
            node: NodeId::new(accepted.node_id)?,
            history: history(accepted.history)?,
            head: seq("head_seq", accepted.head_seq)?,
            floor: seq("floor_seq", accepted.floor_seq)?,
            heartbeat_interval_ms: interval,
            source_is_proven: accepted.source_is_proven,
        })
    }

    fn encode(&self) -> pb::Accepted {
        pb::Accepted {
            cluster_id: self.cluster.to_string(),
            node_id: self.node.to_string(),
            history: put_history(&self.history),
            head_seq: self.head.get(),
            floor_seq: self.floor.get(),
            heartbeat_interval_ms: self.heartbeat_interval_ms,
            source_is_proven: self.source_is_proven,
            capabilities: Vec::new(),
        }
    }
}

impl Refused {
    pub(super) fn decode(refused: pb::Refused) -> Result<Self> {
        use pb::refused::Code;
        let code = match refused.code() {
            Code::WrongCluster => Refusal::WrongCluster,
            Code::Fenced => Refusal::Fenced,
            Code::ConfigConflict => Refusal::ConfigConflict,
            Code::Ahead => Refusal::Ahead,
            Code::Self_ => Refusal::Itself,
            Code::Protocol => Refusal::Protocol,
            Code::Invalid => Refusal::Invalid,
            Code::NotReady => Refusal::NotReady,
            Code::Unspecified => return Err(unknown("refused.code", refused.code)),
        };
        Ok(Self {
            code,
            text: refused.text,
            epoch: Epoch::new(refused.epoch),
        })
    }

    fn encode(&self) -> pb::Refused {
        use pb::refused::Code;
        let code = match self.code {
            Refusal::WrongCluster => Code::WrongCluster,
            Refusal::Fenced => Code::Fenced,
            Refusal::ConfigConflict => Code::ConfigConflict,
            Refusal::Ahead => Code::Ahead,
            Refusal::Itself => Code::Self_,
            Refusal::Protocol => Code::Protocol,
            Refusal::Invalid => Code::Invalid,
            Refusal::NotReady => Code::NotReady,
        };
        pb::Refused {
            code: code.into(),
            text: put_text(&self.text),
            epoch: self.epoch.get(),
        }
    }
}

pub(super) fn snapshot_reason(required: &pb::SnapshotRequired) -> Result<SnapshotReason> {
    use pb::snapshot_required::Reason;
    Ok(match required.reason() {
        Reason::BelowFloor => SnapshotReason::BelowFloor,
        Reason::Backlog => SnapshotReason::Backlog,
        Reason::Forked => SnapshotReason::Forked {
            fork: match required.fork_seq {
                0 => None,
                fork => Some(seq("fork_seq", fork)?),
            },
        },
        Reason::Unspecified => {
            return Err(unknown("snapshot_required.reason", required.reason));
        }
    })
}

fn put_snapshot_required(reason: SnapshotReason, text: &str) -> pb::SnapshotRequired {
    use pb::snapshot_required::Reason;
    let (reason, fork) = match reason {
        SnapshotReason::BelowFloor => (Reason::BelowFloor, None),
        SnapshotReason::Backlog => (Reason::Backlog, None),
        SnapshotReason::Forked { fork } => (Reason::Forked, fork),
    };
    pb::SnapshotRequired {
        reason: reason.into(),
        text: put_text(text),
        floor_seq: 0,
        fork_seq: fork.map_or(0, Seq::get),
    }
}

pub(super) fn unknown(field: &'static str, value: i32) -> Error {
    Error::invalid(field, format!("{value} is not known to this version"))
}
