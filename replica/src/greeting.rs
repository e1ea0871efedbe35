//! The source's end of a stream, from the follower's first word to its last.
//!
//! A task reads what the follower says and hands it to the source's thread; another says at
//! each interval that this node is alive. The handshake is decided on the thread, because it
//! reads the database.

use std::sync::Arc;

use tidegate_engine::adapter::Connection;
use tidegate_engine::{Engine, Error as EngineError, Seq, clock};
use tidegate_proto::PROTOCOL_VERSION;
use tidegate_proto::peer::v1 as pb;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::error::{Error, Result};
use crate::followers::Attached;
use crate::history::{Admission, Refusal, SnapshotReason, SourceFacts, Standing, admit};
use crate::ids::ClusterId;
use crate::service::{Met, Peer};
use crate::slots::{self, NoSlot};
use crate::source::{Inbound, Outbound, Source};
use crate::standing;
use crate::wire::{Accepted, FromFollower, Greeting, Hello, Refused, SourceClock};

/// Messages of a follower that wait for the source's thread. When they are full the stream is
/// not read: the follower feels it.
const INBOUND_MAX: usize = 64;

/// A stream that was just opened.
pub struct Incoming {
    /// This node.
    pub peer: Peer,
    /// Its database.
    pub engine: Arc<Engine>,
    /// What the follower says.
    pub messages: Streaming<pb::FollowerMessage>,
    /// Where answers go.
    pub outbound: Outbound,
    /// Ends the stream.
    pub stop: CancellationToken,
}

impl Incoming {
    /// Reads the first message, starts the source's thread, and passes on what follows.
    pub async fn run(mut self) {
        let hello = match self.hello().await {
            Ok(hello) => hello,
            Err(error) => {
                tracing::info!(%error, "a stream ended before it began");
                self.outbound
                    .send(Err(Status::invalid_argument(error.to_string())))
                    .await
                    .ok();
                return;
            }
        };
        let (sender, inbound) = mpsc::channel(INBOUND_MAX);
        let stop = self.stop.clone();
        self.watch_engine();
        if let Err(error) = self.spawn(hello, inbound) {
            tracing::error!(%error, "no thread for a follower");
            return;
        }
        let pump = pump(self.messages, sender);
        tokio::select! {
            () = stop.cancelled() => {}
            () = pump => {}
        }
    }

    async fn hello(&mut self) -> Result<Hello> {
        let deadline = self.peer.settings.dial_deadline;
        let first = tokio::time::timeout(deadline, self.messages.message()).await;
        let first = first.map_err(|_| Error::network("no Hello in time"))??;
        match first.map(FromFollower::decode).transpose()? {
            Some(FromFollower::Hello(hello)) => Ok(hello),
            _ => Err(Error::protocol("the first message is not Hello")),
        }
    }

    /// Ends the stream when the database it reads from is closed.
    fn watch_engine(&self) {
        let mut current = self.peer.engine.clone();
        let (ours, stop) = (Arc::downgrade(&self.engine), self.stop.clone());
        tokio::spawn(async move {
            let is_other = |engine: &Option<Arc<Engine>>| {
                !engine
                    .as_ref()
                    .is_some_and(|engine| std::ptr::eq(Arc::as_ptr(engine), ours.as_ptr()))
            };
            tokio::select! {
                () = stop.cancelled() => {}
                _ = current.wait_for(is_other) => stop.cancel(),
            }
        });
    }

    fn spawn(&self, hello: Hello, inbound: Inbound) -> Result<()> {
        let serving = Serving {
            peer: self.peer.clone(),
            engine: self.engine.clone(),
            outbound: self.outbound.clone(),
            stop: self.stop.clone(),
            runtime: Handle::current(),
        };
        std::thread::Builder::new()
            .name(format!("source-{}", hello.node))
            .spawn(move || serving.run(&hello, inbound))
            .map_err(Error::network)?;
        Ok(())
    }
}

/// Reads the stream until it ends or says something wrong.
async fn pump(
    mut messages: Streaming<pb::FollowerMessage>,
    sender: mpsc::Sender<Result<FromFollower>>,
) {
    loop {
        let heard = match messages.message().await {
            Ok(Some(message)) => FromFollower::decode(message),
            Ok(None) => return,
            Err(status) => Err(status.into()),
        };
        let is_last = heard.is_err();
        if sender.send(heard).await.is_err() || is_last {
            return;
        }
    }
}

/// The thread's side.
struct Serving {
    peer: Peer,
    engine: Arc<Engine>,
    outbound: Outbound,
    stop: CancellationToken,
    runtime: Handle,
}

impl Serving {
    fn run(self, hello: &Hello, inbound: Inbound) {
        let _ended = self.stop.clone().drop_guard();
        let node = &hello.node;
        match self.serve(hello, inbound) {
            Ok(()) => tracing::info!(%node, "the follower's stream ended"),
            Err(error) => tracing::warn!(%node, %error, "the follower's stream ended"),
        }
    }

    fn serve(&self, hello: &Hello, inbound: Inbound) -> Result<()> {
        let mut connection = self.engine.store().reader()?;
        let Some(attached) = self.greet(&mut connection, hello)? else {
            return Ok(());
        };
        let applied = hello.standing.seq;
        self.runtime.spawn(beat(
            self.outbound.clone(),
            self.engine.head(),
            self.engine.floor(),
            self.peer.settings.heartbeat_interval,
            attached.cancel.clone(),
        ));
        tracing::info!(node = %hello.node, %applied, "a follower's stream begins");
        let source = Source::new(
            self.engine.clone(),
            self.peer.settings,
            self.runtime.clone(),
            attached,
            (inbound, self.outbound.clone()),
            applied,
        );
        source.run(&mut connection)
    }

    /// Says the first word. A follower that is accepted has a durable slot before it hears so.
    fn greet(&self, connection: &mut Connection, hello: &Hello) -> Result<Option<Attached<'_>>> {
        let (ours, facts) = standing::read(&self.engine, connection)?;
        let verdict = if hello.protocol_version != PROTOCOL_VERSION {
            Admission::Refused(Refusal::Protocol)
        } else if hello.boot == self.peer.boot || hello.node == self.peer.node {
            Admission::Refused(Refusal::Itself)
        } else {
            admit(&ours, facts, &hello.standing)
        };
        let (greeting, attached) = match (verdict, ours.cluster) {
            (Admission::Accepted, Some(cluster)) => match self.attach(hello)? {
                Ok(attached) => (self.accept(cluster, ours, facts), Some(attached)),
                Err(no_slot) => (no_slot_greeting(no_slot, hello, &ours.history), None),
            },
            (Admission::SnapshotRequired(reason), _) => {
                let text = explain_snapshot(reason, hello.standing.seq, facts.floor);
                (Greeting::SnapshotRequired(reason, text), None)
            }
            (Admission::Refused(code), _) => (self.refuse(code, hello, &ours.history), None),
            (Admission::Accepted, None) => {
                (self.refuse(Refusal::NotReady, hello, &ours.history), None)
            }
        };
        if let Admission::Refused(code) = verdict {
            self.note_meeting(code, hello);
        }
        if attached.is_none() {
            let why = format!("{verdict:?}");
            tracing::info!(node = %hello.node, why, "a follower was turned away");
            self.peer
                .followers
                .refused(&hello.node, hello.standing.seq, &why);
        }
        let sent = self.outbound.blocking_send(Ok(greeting.encode()));
        sent.map_err(|_| Error::network("the follower is gone"))?;
        Ok(attached)
    }

    /// From here on the log is held for the follower, also after a restart of this process.
    fn attach(&self, hello: &Hello) -> Result<Result<Attached<'_>, NoSlot>> {
        let followers = &self.peer.followers;
        let applied = hello.standing.seq;
        match followers.attach(&hello.node, hello.boot, applied, &self.stop) {
            Ok(attached) => {
                slots::save(&self.engine, followers, &hello.node)?;
                Ok(Ok(attached))
            }
            Err(no_slot) => Ok(Err(no_slot)),
        }
    }

    fn accept(&self, cluster: ClusterId, ours: Standing, facts: SourceFacts) -> Greeting {
        Greeting::Accepted(Accepted {
            cluster,
            node: self.peer.node.clone(),
            head: ours.seq,
            floor: facts.floor,
            heartbeat_interval_ms: interval_ms(&self.peer),
            source_is_proven: self.peer.facts.borrow().is_proven,
            history: ours.history,
        })
    }

    /// A follower that knows of another primary says something about this node too.
    fn note_meeting(&self, code: Refusal, hello: &Hello) {
        if let Refusal::Fenced | Refusal::ConfigConflict | Refusal::Ahead = code {
            self.peer.met.send_replace(Some(Met {
                node: hello.node.clone(),
                standing: hello.standing.clone(),
            }));
        }
    }

    fn refuse(&self, code: Refusal, hello: &Hello, ours: &crate::history::History) -> Greeting {
        let theirs = &hello.standing.history;
        let text = match code {
            Refusal::WrongCluster => "this node belongs to another cluster".to_owned(),
            Refusal::Fenced => format!(
                "this node is at epoch {}, you have seen epoch {}",
                ours.epoch(),
                theirs.epoch()
            ),
            Refusal::ConfigConflict => {
                let opener = |history: &crate::history::History| {
                    history.last().map_or_else(String::new, |o| o.node.clone())
                };
                format!(
                    "epoch {} was opened by {} and, independently, by {}; an operator decides whose \
                     data counts",
                    ours.epoch(),
                    opener(ours),
                    opener(theirs),
                )
            }
            Refusal::Ahead => format!(
                "you have applied {}, which this node does not have (any more)",
                hello.standing.seq
            ),
            Refusal::Itself => "a node does not follow itself, nor one of its own name".to_owned(),
            Refusal::Protocol => format!("this node speaks version {PROTOCOL_VERSION}"),
            Refusal::Invalid => "the handshake is not valid".to_owned(),
            Refusal::NotReady => "this node has nothing to feed from yet".to_owned(),
        };
        Greeting::Refused(Refused {
            code,
            text,
            epoch: ours.epoch(),
        })
    }
}

/// Says at each interval that this node is alive. While the queue is full data is flowing,
/// which says the same.
async fn beat(
    outbound: Outbound,
    head: watch::Receiver<tidegate_engine::Head>,
    floor: watch::Receiver<Seq>,
    interval: std::time::Duration,
    stop: CancellationToken,
) {
    let mut ticks = tokio::time::interval(interval);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let head = *head.borrow();
        let clock = SourceClock {
            head: head.seq,
            floor: *floor.borrow(),
            now_ms: u64::try_from(clock::now_ms()).unwrap_or(0),
            head_committed_ms: u64::try_from(head.committed_ms).unwrap_or(0),
        };
        if let Err(mpsc::error::TrySendError::Closed(_)) = outbound.try_send(Ok(clock.encode())) {
            return;
        }
    }
}

fn interval_ms(peer: &Peer) -> u32 {
    u32::try_from(peer.settings.heartbeat_interval.as_millis()).unwrap_or(u32::MAX)
}

fn no_slot_greeting(no_slot: NoSlot, hello: &Hello, ours: &crate::history::History) -> Greeting {
    match no_slot {
        NoSlot::BelowFloor(floor) => {
            let reason = SnapshotReason::BelowFloor;
            let text = explain_snapshot(reason, hello.standing.seq, floor);
            Greeting::SnapshotRequired(reason, text)
        }
        NoSlot::TooMany => Greeting::Refused(Refused {
            code: Refusal::NotReady,
            text: EngineError::from(no_slot).to_string(),
            epoch: ours.epoch(),
        }),
    }
}

fn explain_snapshot(reason: SnapshotReason, applied: Seq, floor: Seq) -> String {
    match reason {
        SnapshotReason::BelowFloor => {
            format!("position {applied} is below {floor}, where this node's log begins")
        }
        SnapshotReason::Backlog => "the backlog costs more than a snapshot".to_owned(),
        SnapshotReason::Forked { fork: Some(fork) } => {
            format!("changes after {fork} are not on this history")
        }
        SnapshotReason::Forked { fork: None } => {
            format!("position {applied} has no opening in common with this history")
        }
    }
}
