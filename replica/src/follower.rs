//! A node that follows another, from its start to its end.
//!
//! ```text
//!            ┌──────────── wait (back-off) ◄───────────────┐
//!            ▼                                             │ lost, refused
//!   open ─► dial, Hello ─► follow ──────────────────────────┤
//!    ▲                       │                             │ snapshot required
//!    │                       │ engine failed               ▼
//!    └── close ◄─────────────┘              receive, close, install, open
//! ```
//!
//! The follower owns the opening and closing of its database, because a snapshot replaces the
//! file. Errors sort themselves by what has to happen: the network is tried again, a full disk
//! too; a batch that cannot be applied stops the node where it is, with the reason, until
//! somebody does something about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::adapter::Connection;
use tidegate_engine::{Applier, Engine, Error as EngineError, Seq, meta};
use tidegate_proto::PROTOCOL_VERSION;
use tidegate_proto::peer::v1 as pb;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::applying::{Applied, Applying};
use crate::backoff::Backoff;
use crate::dial;
use crate::error::{Error, Result};
use crate::history::{Refusal, SnapshotReason, Standing};
use crate::ids::{BootId, ClusterId, NodeId};
use crate::lag::{HeadTrail, LevelClock};
use crate::mount::Mount;
use crate::proof::Prover;
use crate::settings::Settings;
use crate::sink::{self, Ended};
use crate::standing;
use crate::state::{FollowerState, Phase};
use crate::transfer;
use crate::wire::{Accepted, Hello, SourceClock};

/// Requests that may wait for the follower.
const REQUESTS_MAX: usize = 8;

/// Whom to follow, as the value of whoever knows it.
pub type SourceAddress = watch::Receiver<Option<String>>;

/// An address that does not change.
pub fn fixed_source(url: String) -> SourceAddress {
    watch::Sender::new(Some(url)).subscribe()
}

/// Whom to follow, and as whom.
#[derive(Debug, Clone)]
pub struct FollowerConfig {
    /// This node's name.
    pub node: NodeId,
    /// Tells this run of the process from others.
    pub boot: BootId,
    /// Peer address of the source, `http://host:9070`; `None` while nobody knows one. When it
    /// changes the stream ends and the new one is dialled: a stream is worth nothing when its
    /// source does not lead any more.
    pub source: SourceAddress,
    /// Bounds.
    pub settings: Settings,
}

/// What others may ask of a running follower.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A convergence pass, at full speed.
    Pass {
        /// Why, for people.
        why: String,
    },
    /// The source's side, whatever this node holds: also mends a node that is stalled.
    Repair {
        /// Why, for people.
        why: String,
    },
}

/// A handle on a running follower.
#[derive(Clone)]
pub struct FollowerHandle {
    /// What it knows of itself.
    pub state: watch::Receiver<FollowerState>,
    requests: mpsc::Sender<Request>,
}

/// See the module's head.
pub struct Follower {
    config: FollowerConfig,
    /// The source of the present attempt.
    url: String,
    mount: Arc<Mount>,
    state: watch::Sender<FollowerState>,
    requests: mpsc::Receiver<Request>,
    prover: Prover,
    backoff: Backoff,
    streams: u64,
    /// Why this node is to be repaired, until it is.
    repair: Option<String>,
    trail: HeadTrail,
    level: LevelClock,
    /// The source's clock at an instant of ours.
    source_clock: Option<(Instant, u64)>,
    draft: FollowerState,
}

/// The open database with its thread.
struct Open {
    engine: Arc<Engine>,
    applying: Applying,
}

/// What the outer loop does next.
enum Next {
    /// Dial again after a wait.
    Wait,
    /// Close the database, wait, open it again.
    Reopen,
    /// A snapshot first.
    Snapshot,
    /// Nothing, until the process stops.
    Rest,
    /// End.
    Stop,
}

impl FollowerHandle {
    /// Asks for a convergence pass. False if too much is waiting already.
    pub fn request_pass(&self, why: &str) -> bool {
        self.requests
            .try_send(Request::Pass { why: why.into() })
            .is_ok()
    }

    /// Asks for the source's side to be copied over this node's. The node is not ready until
    /// a new pass has proven it. False if too much is waiting already.
    pub fn request_repair(&self, why: &str) -> bool {
        self.requests
            .try_send(Request::Repair { why: why.into() })
            .is_ok()
    }
}

impl Follower {
    /// A follower and a handle on it. [`Follower::run`] makes it go.
    pub fn new(config: FollowerConfig, mount: Arc<Mount>) -> (Self, FollowerHandle) {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        let state = watch::Sender::new(FollowerState::starting());
        let handle = FollowerHandle {
            state: state.subscribe(),
            requests: sender,
        };
        let follower = Self {
            backoff: Backoff::new(config.settings.backoff),
            url: String::new(),
            config,
            mount,
            state,
            requests,
            prover: Prover::new(),
            streams: 0,
            repair: None,
            trail: HeadTrail::default(),
            level: LevelClock::new(Instant::now()),
            source_clock: None,
            draft: FollowerState::starting(),
        };
        (follower, handle)
    }

    /// Follows until `stop`. The database is closed at the end.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut open = None;
        loop {
            let begun = Instant::now();
            let next = match self.repair {
                Some(_) => Next::Snapshot,
                None => match self.ensure_open(&mut open).await {
                    Ok(node) => self.attempt(node, &stop).await,
                    Err(error) => self.failed(error),
                },
            };
            match next {
                Next::Stop => break,
                Next::Rest => self.rest(&stop).await,
                Next::Snapshot => {
                    if let Err(error) = self.take_snapshot(&mut open, &stop).await {
                        self.snapshot_failed(&error);
                        self.pause(begun, &stop).await;
                    }
                }
                Next::Reopen => {
                    self.close(&mut open).await;
                    self.pause(begun, &stop).await;
                }
                Next::Wait => self.pause(begun, &stop).await,
            }
            if stop.is_cancelled() {
                break;
            }
        }
        self.close(&mut open).await;
        self.publish(Phase::Stopped, "");
    }

    async fn ensure_open<'o>(
        &mut self,
        open: &'o mut Option<Open>,
    ) -> Result<&'o mut Open, EngineError> {
        if let Some(node) = open {
            return Ok(node);
        }
        let mount = self.mount.clone();
        let (engine, applier) = blocking(move || mount.open()).await?;
        self.draft.applied = applier.position();
        self.draft.received = applier.position();
        let applying = self.start_applying(engine.clone(), applier)?;
        Ok(open.insert(Open { engine, applying }))
    }

    fn start_applying(
        &self,
        engine: Arc<Engine>,
        applier: Applier,
    ) -> Result<Applying, EngineError> {
        let queued = self.config.settings.work_queued_max;
        Applying::start(engine, applier, queued).map_err(|e| EngineError::Io(e.to_string()))
    }

    /// One stream, from dialling to its end.
    async fn attempt(&mut self, node: &mut Open, stop: &CancellationToken) -> Next {
        let Some(url) = self.config.source.borrow_and_update().clone() else {
            self.publish(Phase::Connecting, NO_SOURCE);
            return Next::Wait;
        };
        self.url = url;
        self.publish(Phase::Connecting, "");
        let settled = tokio::select! {
            () = stop.cancelled() => return Next::Stop,
            settled = node.applying.settle() => settled,
        };
        let hello = match settled {
            Ok(applied) => self.hello(&node.engine, applied).await,
            Err(error) => return self.failed(error),
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(Error::Engine(error)) => return self.failed(error),
            Err(error) => return self.failed(EngineError::Corrupt(error.to_string())),
        };
        let ours = hello.standing.clone();
        let engine = node.engine.clone();
        let stream = stop.child_token();
        let _moved = cancel_when_moved(self.config.source.clone(), stream.clone());
        let opened = tokio::select! {
            () = stream.cancelled() => return self.ended(Ended::Stop),
            opened = sink::open(self, &engine, &mut node.applying, hello) => opened,
        };
        let ended = match opened {
            Ok((sink, accepted)) => match sink.accept(&ours, &accepted).await {
                Ok(sink) => sink.follow(&stream).await,
                Err(ended) => ended,
            },
            Err(ended) => ended,
        };
        self.ended(ended)
    }

    async fn hello(&mut self, engine: &Arc<Engine>, applied: Seq) -> Result<Hello> {
        let engine = engine.clone();
        let standing = blocking(move || {
            let mut connection = engine.store().reader()?;
            standing::read(&engine, &mut connection).map(|(standing, _)| standing)
        })
        .await?;
        if standing.seq != applied {
            return Err(Error::Engine(EngineError::Diverging(format!(
                "the log is at {} but {applied} was applied",
                standing.seq
            ))));
        }
        self.draft.epoch = standing.history.epoch();
        self.draft.applied = applied;
        self.draft.received = applied;
        Ok(Hello {
            protocol_version: PROTOCOL_VERSION,
            node: self.config.node.clone(),
            boot: self.config.boot,
            standing,
        })
    }

    fn ended(&mut self, ended: Ended) -> Next {
        self.draft.source = None;
        match ended {
            // Only the stream if the source moved; the caller looks at the process's own token.
            Ended::Stop => Next::Wait,
            Ended::Lost(error) => {
                tracing::info!(%error, "the stream ended");
                self.draft.failures += 1;
                self.publish(Phase::Connecting, &error.to_string());
                Next::Wait
            }
            Ended::Refused(refused) => {
                tracing::warn!(code = refused.code.word(), text = refused.text, "refused");
                self.draft.failures += 1;
                let phase = match refused.code {
                    Refusal::NotReady => Phase::Connecting,
                    code => Phase::Refused(code),
                };
                self.publish(phase, &refused.text);
                Next::Wait
            }
            Ended::SnapshotRequired(SnapshotReason::Forked { fork }, text) => {
                // Its changes are nobody else's: they are not thrown away in silence.
                tracing::error!(
                    ?fork,
                    text,
                    "this node holds changes that the cluster cut off"
                );
                self.publish(Phase::Forked, &text);
                Next::Wait
            }
            Ended::SnapshotRequired(reason, text) => {
                tracing::info!(?reason, text, "a snapshot is required");
                Next::Snapshot
            }
            Ended::Repair(why) => {
                self.begin_repair(why);
                Next::Snapshot
            }
            Ended::Failed(error) => self.failed(error),
        }
    }

    /// Changes that only this node holds are not overwritten by it.
    fn begin_repair(&mut self, why: String) {
        if self.draft.phase == Phase::Forked {
            tracing::error!(why, "not repaired: this node holds changes of its own");
            return;
        }
        tracing::warn!(why, "the source's side will be copied over this node's");
        self.repair = Some(why);
    }

    /// Nothing can be done until somebody asks for a repair.
    async fn rest(&mut self, stop: &CancellationToken) {
        while self.repair.is_none() {
            tokio::select! {
                () = stop.cancelled() => return,
                request = self.requests.recv() => match request {
                    Some(Request::Repair { why }) => self.begin_repair(why),
                    Some(Request::Pass { .. }) => {}
                    None => {
                        stop.cancelled().await;
                        return;
                    }
                },
            }
        }
    }

    /// The database failed: what kind of failure decides what happens next.
    fn failed(&mut self, error: EngineError) -> Next {
        self.prover.void(&format!("an error: {error}"));
        self.draft.failures += 1;
        let (phase, next) = match &error {
            EngineError::NoSpace(_) => (Phase::NoSpace, Next::Reopen),
            EngineError::Diverging(_) | EngineError::Format(_) => (Phase::Stalled, Next::Rest),
            EngineError::Io(_) | EngineError::Busy | EngineError::Interrupted => {
                (Phase::IoError, Next::Reopen)
            }
            EngineError::Corrupt(_) | EngineError::Fatal(_) => (Phase::IoError, Next::Rest),
            EngineError::Closed => (Phase::Connecting, Next::Reopen),
            _ => (Phase::Stalled, Next::Rest),
        };
        tracing::error!(%error, ?phase, "this node cannot follow");
        self.publish(phase, &error.to_string());
        next
    }

    fn snapshot_failed(&mut self, error: &Error) {
        tracing::warn!(%error, "no snapshot");
        self.draft.failures += 1;
        self.draft.transfer = None;
        let phase = match error {
            Error::Engine(EngineError::NoSpace(_)) => Phase::NoSpace,
            _ => Phase::Connecting,
        };
        self.publish(phase, &error.to_string());
    }

    /// Receives a snapshot beside the open database, then exchanges the two.
    async fn take_snapshot(
        &mut self,
        open: &mut Option<Open>,
        stop: &CancellationToken,
    ) -> Result<()> {
        self.publish(Phase::Snapshotting, "");
        let checked = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            received = self.receive_snapshot() => received?,
        };
        let position = checked.position();
        self.close(open).await;
        let mount = self.mount.clone();
        blocking(move || mount.install(checked)).await?;
        match self.repair.take() {
            Some(why) => {
                self.draft.repairs += 1;
                self.prover.forget(&format!("the repair ({why})"));
            }
            None => self.prover.forget("a snapshot was installed"),
        }
        self.draft.transfer = None;
        self.draft.snapshots += 1;
        self.draft.applied = position;
        self.draft.received = position;
        self.trail = HeadTrail::default();
        self.backoff.reset();
        tracing::info!(%position, "a snapshot was installed");
        Ok(())
    }

    async fn receive_snapshot(&mut self) -> Result<tidegate_engine::snapshot::Checked> {
        let settings = self.config.settings;
        let source = self.config.source.borrow_and_update().clone();
        let source = source.ok_or_else(|| Error::network(NO_SOURCE))?;
        let mut client = dial::dial(&source, &settings).await?;
        let request = dial::request(pb::SnapshotRequest {
            protocol_version: PROTOCOL_VERSION,
            cluster_id: String::new(),
            node_id: self.config.node.to_string(),
        });
        let chunks = client.snapshot(request).await?.into_inner();
        let data_dir = self.mount.options().data_dir.clone();
        let state = &self.state;
        transfer::receive(chunks, data_dir, settings.send_deadline, |progress| {
            state.send_modify(|state| state.transfer = Some(progress));
        })
        .await
    }

    async fn close(&mut self, open: &mut Option<Open>) {
        let Some(Open { engine, applying }) = open.take() else {
            return;
        };
        let mount = self.mount.clone();
        let closed = blocking(move || {
            applying.stop();
            mount.close(engine)
        });
        if let Err(error) = closed.await {
            tracing::error!(%error, "closing the database");
        }
    }

    /// Waits before the next dial.
    async fn pause(&mut self, begun: Instant, stop: &CancellationToken) {
        let wait = self.backoff.after(begun.elapsed(), random());
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
            () = moved(&mut self.config.source) => self.backoff.reset(),
            Some(request) = self.requests.recv() => {
                if let Request::Repair { why } = request {
                    self.begin_repair(why);
                }
            }
        }
    }
}

/// What a stream needs of its follower.
impl Follower {
    pub(crate) fn settings(&self) -> Settings {
        self.config.settings
    }

    pub(crate) fn source_url(&self) -> &str {
        &self.url
    }

    pub(crate) fn prover(&mut self) -> &mut Prover {
        &mut self.prover
    }

    pub(crate) fn requests(&mut self) -> &mut mpsc::Receiver<Request> {
        &mut self.requests
    }

    pub(crate) fn next_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams
    }

    /// The stream begins: takes over the cluster of a source that this node joins for the
    /// first time, and decides whether the proof survives.
    pub(crate) async fn accepted(
        &mut self,
        engine: &Arc<Engine>,
        ours: &Standing,
        accepted: &Accepted,
    ) -> Result<(), Ended> {
        match ours.cluster {
            None => join(engine.clone(), accepted.cluster)
                .await
                .map_err(Ended::Failed)?,
            Some(cluster) if cluster == accepted.cluster => {}
            Some(_) => return Err(Ended::Lost(Error::protocol("accepted by another cluster"))),
        }
        let newest = |history: &crate::history::History| history.last().map(|o| o.nonce);
        if newest(&ours.history) != newest(&accepted.history) {
            self.prover.history_moved(accepted.source_is_proven);
        }
        self.draft.connects += 1;
        self.draft.source = Some(accepted.node.clone());
        self.draft.epoch = accepted.history.epoch();
        self.draft.head = accepted.head.max(self.draft.applied);
        self.level.began(accepted.head);
        self.heard();
        tracing::info!(
            source = %accepted.node, applied = %ours.seq, head = %accepted.head,
            "the stream begins"
        );
        Ok(())
    }

    pub(crate) fn heard(&mut self) {
        self.draft.heard = Some(Instant::now());
    }

    pub(crate) fn silence(&self, now: Instant) -> Option<Duration> {
        self.draft.silence(now)
    }

    pub(crate) fn note_clock(&mut self, clock: SourceClock) {
        self.source_clock = Some((Instant::now(), clock.now_ms));
        self.note_head(clock.head, clock.head_committed_ms);
    }

    pub(crate) fn note_received(&mut self, to: Seq, committed_ms: u64, bytes: u64) {
        self.draft.received = to;
        self.draft.bytes_waiting += bytes;
        self.note_head(to, committed_ms);
    }

    pub(crate) fn note_applied(&mut self, applied: Applied) {
        self.draft.applied = applied.to;
        self.draft.bytes_waiting = self.draft.bytes_waiting.saturating_sub(applied.bytes);
        self.draft.batches_applied += 1;
        self.draft.rows_applied += applied.rows;
        self.draft.bytes_applied += applied.bytes;
        if let Some(now_ms) = self.source_now_ms() {
            self.draft.commit_to_apply_ms = now_ms.saturating_sub(applied.committed_ms);
        }
        self.trail.forget(applied.to);
    }

    /// A pass that is due: why, and whether it may take its time.
    pub(crate) fn pass_due(&self, now: Instant) -> Option<(&'static str, bool)> {
        let settings = &self.config.settings;
        let proof = self.prover.proof();
        if proof.running.is_some() || proof.diverged.is_some() {
            return None;
        }
        let since_last = proof
            .last
            .as_ref()
            .map(|last| now.duration_since(last.ended));
        match &proof.equal {
            Some(equal) if now.duration_since(equal.ended) < settings.proof_renewed_after => None,
            Some(_) => Some(("renewal", true)),
            None if since_last.is_some_and(|since| since < settings.pass_retry) => None,
            None => Some(("start", false)),
        }
    }

    pub(crate) fn publish(&mut self, phase: Phase, detail: &str) {
        self.draft.phase = phase;
        detail.clone_into(&mut self.draft.detail);
        self.draft.behind_since = self.behind_since();
        self.draft.commits_behind = self.trail.commits_after(self.draft.applied);
        if self.draft.proof != *self.prover.proof() {
            self.draft.proof = self.prover.proof().clone();
        }
        self.state.send_replace(self.draft.clone());
    }

    fn note_head(&mut self, head: Seq, committed_ms: u64) {
        self.trail.note(head, committed_ms);
        if head > self.draft.head {
            self.draft.head = head;
            self.draft.head_committed_ms = committed_ms;
        }
    }

    /// The source's clock now, as far as known.
    fn source_now_ms(&self) -> Option<u64> {
        let (then, ms) = self.source_clock?;
        let since = u64::try_from(then.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(ms.saturating_add(since))
    }

    fn behind_since(&mut self) -> Option<Instant> {
        let (applied, head, now) = (self.draft.applied, self.draft.head, Instant::now());
        let lag_ms = self
            .source_now_ms()
            .map_or(0, |now_ms| self.trail.lag_ms(applied, now_ms));
        if let Some(heard) = self.draft.heard
            && applied >= head
        {
            self.level.level(heard);
        }
        self.level.behind_since(applied, head, lag_ms, now)
    }
}

/// What a follower says while it has nobody to dial.
const NO_SOURCE: &str = "no primary is known; waiting for one to be found among the peers";

/// Waits until the address is another one than last seen.
async fn moved(source: &mut SourceAddress) {
    if source.changed().await.is_err() {
        std::future::pending().await
    }
}

/// Ends a stream when its source is not the one to follow any more. Until the guard is dropped.
fn cancel_when_moved(mut source: SourceAddress, stream: CancellationToken) -> DropGuard {
    let over = CancellationToken::new();
    let guard = over.clone().drop_guard();
    tokio::spawn(async move {
        tokio::select! {
            () = over.cancelled() => {}
            () = moved(&mut source) => {
                tracing::info!(source = ?*source.borrow(), "the source moved");
                stream.cancel();
            }
        }
    });
    guard
}

/// A node without data takes over the cluster of its source, before it takes any data.
async fn join(engine: Arc<Engine>, cluster: ClusterId) -> Result<(), EngineError> {
    blocking(move || {
        let mut connection: Connection = engine.store().internal()?;
        meta::set_cluster_id(&mut connection, cluster)
    })
    .await
}

/// Runs what blocks outside of the runtime's threads.
async fn blocking<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<EngineError> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(EngineError::Panicked(error.to_string()).into()),
    }
}

/// Spreads the dials of many followers; when there is no randomness they are merely not
/// spread.
fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}
