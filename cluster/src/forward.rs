//! Where a client's statements run: here, or on the primary.
//!
//! Any node takes any statement. On the primary a session is the engine's own. On a replica
//! the statement gate decides: what only reads runs here; what writes runs on the primary,
//! over a forwarded session. A transaction runs in one place from its beginning to its end,
//! reads included, because half of it elsewhere would see other rows.
//!
//! **Reading what was written.** An answer from the primary is held back until this node has
//! applied its position, so whoever talks to this node reads what it wrote. When that takes
//! longer than [`ForwardLimits::applied_wait`] the answer is given anyway and says so; the
//! session then reads on the primary until this node has caught up.
//!
//! **Lost connections.** Nothing is ever sent twice. A call that was not sent failed and can
//! be sent again. One that was, outside a transaction or as its COMMIT, may have been carried
//! out: the client is told that nobody knows. Inside a transaction it has certainly not; the
//! transaction is gone, and the session refuses everything up to its ROLLBACK, so that the
//! rest of the transaction does not run outside of it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_engine::result::{Described, Params, ResultSet};
use tidegate_engine::statement_gate::{BeginKind, Kind};
use tidegate_engine::{Role, Seq, Session as EngineSession};
use tidegate_proto::peer::v1::replication_client::ReplicationClient;
use tidegate_replica::dial;
use tidegate_replica::follower::SourceAddress;
use tidegate_replica::remote_session::{CallError, OpenError, RemoteSession};
use tidegate_replica::settings::Settings;
use tidegate_replica::wire::{Answer, Call, Failure};
use tonic::transport::Channel;

use crate::front::hrana::error::WireError;
use crate::mounted::EngineSlot;
use crate::status::StatusReceiver;

/// Bounds of forwarding.
#[derive(Debug, Clone, Copy)]
pub struct ForwardLimits {
    /// The primary must have opened a session within this time.
    pub open_deadline: Duration,
    /// A statement must be answered within this time. The primary's own limits (a wait for
    /// the permit, the statement's time) end before; a dead connection is noticed by pings.
    pub answer_deadline: Duration,
    /// The same for a script.
    pub script_deadline: Duration,
    /// An answer waits this long for this node to apply what it stands for.
    pub applied_wait: Duration,
    /// Open sessions kept for the next statement; more are closed.
    pub idle_sessions_max: usize,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            open_deadline: Duration::from_secs(5),
            answer_deadline: Duration::from_secs(120),
            script_deadline: Duration::from_secs(600),
            applied_wait: Duration::from_secs(5),
            idle_sessions_max: 32,
        }
    }
}

/// The way to the primary, shared by all sessions of a replica. When another node becomes the
/// primary, new sessions go there; those that hold a transaction end with the old one.
pub struct Forwarder {
    primary: SourceAddress,
    node: String,
    status: StatusReceiver,
    engine: EngineSlot,
    settings: Settings,
    limits: ForwardLimits,
    client: tokio::sync::Mutex<Option<(String, ReplicationClient<Channel>)>>,
    /// Open, and between two calls, with the address of the primary that has them.
    idle: Mutex<Vec<(String, RemoteSession)>>,
}

/// A client's session.
pub struct Session {
    local: EngineSession,
    /// On a replica.
    forwarder: Option<Arc<Forwarder>>,
    forwarded: Forwarded,
    /// What the primary committed for this session and this node has not applied.
    awaited: Option<Seq>,
}

/// The transaction at the primary.
enum Forwarded {
    None,
    Open(Box<(String, RemoteSession)>),
    /// It was rolled back behind the client's back, who has not said ROLLBACK yet.
    Lost,
}

/// Where a statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    There(Stake),
}

/// What is at stake when the connection is lost in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stake {
    /// Nothing is committed by it.
    Nothing,
    /// Something may be.
    Commit,
}

impl Forwarder {
    /// To the primary whose peer address this tells, from the node of this name.
    pub fn new(
        primary: SourceAddress,
        node: String,
        status: StatusReceiver,
        engine: EngineSlot,
        settings: Settings,
        limits: ForwardLimits,
    ) -> Self {
        Self {
            primary,
            node,
            status,
            engine,
            settings,
            limits,
            client: tokio::sync::Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// This node does not write itself.
    fn is_needed(&self) -> bool {
        let engine = self.engine.get();
        engine.is_some_and(|engine| engine.role() == Role::Replica)
    }

    fn holds(&self, position: Seq) -> bool {
        let engine = self.engine.get();
        engine.is_some_and(|engine| engine.head().borrow().seq >= position)
    }

    /// Waits until this node has applied a position.
    async fn wait_applied(&self, position: Seq) -> bool {
        let Some(mut head) = self.engine.get().map(|engine| engine.head()) else {
            return false;
        };
        let reached = head.wait_for(|head| head.seq >= position);
        let reached = tokio::time::timeout(self.limits.applied_wait, reached).await;
        matches!(reached, Ok(Ok(_)))
    }

    /// An open session. An error means that nothing was asked of anybody.
    async fn open(&self) -> Result<(String, RemoteSession), WireError> {
        let Some(url) = self.primary.borrow().clone() else {
            return Err(not_ready("no primary is known to this node at the moment"));
        };
        loop {
            let idle = self.idle().pop();
            let Some((of, mut idle)) = idle else { break };
            if of == url && idle.is_alive().await {
                return Ok((of, idle));
            }
        }
        let opened = tokio::time::timeout(self.limits.open_deadline, self.open_new(&url)).await;
        let opened = opened.unwrap_or_else(|_| Err(unreached(&url, "it did not answer in time")));
        Ok((url, opened?))
    }

    async fn open_new(&self, url: &str) -> Result<RemoteSession, WireError> {
        let cluster = self.status.borrow().cluster_id.clone();
        let mut client = self.client(url).await?;
        let opened = RemoteSession::open(&mut client, &cluster, &self.node, &self.settings).await;
        match opened {
            Ok(session) => Ok(session),
            Err(OpenError::Refused(failure)) => Err(wire(failure)),
            Err(OpenError::Unreached(error)) => {
                // The next one resolves the name anew.
                *self.client.lock().await = None;
                Err(unreached(url, error))
            }
        }
    }

    async fn client(&self, url: &str) -> Result<ReplicationClient<Channel>, WireError> {
        let mut client = self.client.lock().await;
        if let Some((of, client)) = &*client
            && of == url
        {
            return Ok(client.clone());
        }
        let dialled = dial::dial(url, &self.settings).await;
        let dialled = dialled.map_err(|error| unreached(url, error))?;
        Ok(client.insert((url.to_owned(), dialled)).1.clone())
    }

    fn keep(&self, of: String, session: RemoteSession) {
        let mut idle = self.idle();
        if idle.len() < self.limits.idle_sessions_max {
            idle.push((of, session));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(String, RemoteSession)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Of this node's engine, and on a replica with the way to the primary.
    pub fn new(local: EngineSession, forwarder: Option<Arc<Forwarder>>) -> Self {
        Self {
            local,
            forwarder,
            forwarded: Forwarded::None,
            awaited: None,
        }
    }

    /// True while no transaction is open. One that was lost counts as open until ROLLBACK.
    pub fn is_autocommit(&self) -> bool {
        matches!(self.forwarded, Forwarded::None) && self.local.is_autocommit()
    }

    /// False while this node has not applied what this session has committed.
    pub fn is_applied(&self) -> bool {
        self.awaited.is_none()
    }

    /// Runs one statement.
    pub async fn execute(
        &mut self,
        sql: &str,
        params: Params,
        wants_rows: bool,
    ) -> Result<ResultSet, WireError> {
        if matches!(self.forwarded, Forwarded::Lost) {
            return self.after_loss(sql);
        }
        let stake = match self.place(sql) {
            Place::Here => return Ok(self.local.execute(sql, params, wants_rows).await?),
            Place::There(stake) => stake,
        };
        let call = Call::Execute {
            sql: sql.to_owned(),
            params,
            wants_rows,
        };
        match self.forward(call, stake).await {
            Ok(Answer::Result(result)) => Ok(result),
            Ok(_) => Err(unexpected()),
            // A ROLLBACK that found its transaction gone has what it wanted.
            Err(_) if matches!(self.forwarded, Forwarded::Lost) => self.after_loss(sql),
            Err(error) => Err(error),
        }
    }

    /// Runs several statements in order. A script that writes anywhere runs on the primary as
    /// a whole.
    pub async fn execute_script(&mut self, sql: &str) -> Result<(), WireError> {
        if matches!(self.forwarded, Forwarded::Lost) {
            return Err(lost());
        }
        if !self.is_script_for_primary(sql)? {
            return Ok(self.local.execute_script(sql).await?);
        }
        let call = Call::Script(sql.to_owned());
        self.forward(call, Stake::Commit).await.map(drop)
    }

    /// Tells a statement's columns and parameters without running it.
    pub async fn describe(&mut self, sql: &str) -> Result<Described, WireError> {
        match self.forwarded {
            Forwarded::None => return Ok(self.local.describe(sql).await?),
            Forwarded::Lost => return Err(lost()),
            Forwarded::Open(_) => {}
        }
        let call = Call::Describe(sql.to_owned());
        match self.forward(call, Stake::Nothing).await? {
            Answer::Description(described) => Ok(described),
            _ => Err(unexpected()),
        }
    }

    /// Ends the session; an open transaction is rolled back.
    pub async fn close(self) {
        self.local.close().await;
    }

    fn place(&mut self, sql: &str) -> Place {
        let Some(forwarder) = &self.forwarder else {
            return Place::Here;
        };
        if matches!(self.forwarded, Forwarded::Open(_)) {
            return Place::There(stake_inside(self.local.classify(sql).as_ref().ok()));
        }
        if !self.local.is_autocommit() || !forwarder.is_needed() {
            return Place::Here;
        }
        if self
            .awaited
            .is_some_and(|position| forwarder.holds(position))
        {
            self.awaited = None;
        }
        // What the gate refuses is refused here, with the same words.
        let Ok(kind) = self.local.classify(sql) else {
            return Place::Here;
        };
        place_outside(&kind, self.awaited.is_some())
    }

    fn is_script_for_primary(&mut self, sql: &str) -> Result<bool, WireError> {
        if matches!(self.forwarded, Forwarded::Open(_)) {
            return Ok(true);
        }
        if !self.forwarder.as_ref().is_some_and(|way| way.is_needed()) {
            return Ok(false);
        }
        let statements = self.local.split(sql)?;
        let there = statements.iter().any(|sql| self.place(sql) != Place::Here);
        Ok(there)
    }

    /// Nothing but the end of the lost transaction is run.
    fn after_loss(&mut self, sql: &str) -> Result<ResultSet, WireError> {
        match self.local.classify(sql) {
            Ok(Kind::Rollback) => {
                self.forwarded = Forwarded::None;
                Ok(ResultSet::default())
            }
            Ok(Kind::Commit) => {
                self.forwarded = Forwarded::None;
                Err(lost())
            }
            _ => Err(lost()),
        }
    }

    /// Runs a call on the primary. If this future is dropped half-way the forwarded stream is
    /// too, which rolls back.
    async fn forward(&mut self, call: Call, stake: Stake) -> Result<Answer, WireError> {
        let forwarder = self
            .forwarder
            .clone()
            .expect("a place elsewhere needs a way");
        let (of, mut remote, state) = match std::mem::replace(&mut self.forwarded, Forwarded::None)
        {
            Forwarded::Open(open) => {
                self.forwarded = Forwarded::Lost;
                (open.0, open.1, None)
            }
            _ => {
                let (of, remote) = forwarder.open().await?;
                (of, remote, Some(self.local.state()))
            }
        };
        let inside = state.is_none();
        if inside && !remote.is_alive().await {
            return Err(lost());
        }
        let deadline = match &call {
            Call::Script(_) => forwarder.limits.script_deadline,
            _ => forwarder.limits.answer_deadline,
        };
        let mut engine = forwarder.engine.clone();
        let answer = tokio::select! {
            answer = remote.ask(state, call, deadline) => answer,
            // A snapshot takes the file's place, and nobody may hold the old one.
            () = engine.closed() => Err(CallError::Lost(tidegate_replica::Error::network(
                "this node's database was closed",
            ))),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.failed(error, (of, remote), stake, inside)),
        };
        self.local.restore(answer.state);
        match answer.is_autocommit {
            true => {
                self.forwarded = Forwarded::None;
                forwarder.keep(of, remote);
            }
            false => self.forwarded = Forwarded::Open(Box::new((of, remote))),
        }
        if let (Some(position), Stake::Commit) = (answer.position, stake) {
            let applied = forwarder.wait_applied(position).await;
            self.awaited = (!applied).then_some(position);
        }
        match answer.answer {
            Answer::Failed(failure) => Err(wire(failure)),
            answer => Ok(answer),
        }
    }

    fn failed(
        &mut self,
        error: CallError,
        remote: (String, RemoteSession),
        stake: Stake,
        inside: bool,
    ) -> WireError {
        match error {
            CallError::TooLarge(..) => {
                if inside {
                    self.forwarded = Forwarded::Open(Box::new(remote));
                }
                WireError::new("TIDEGATE_TOO_LARGE", format!("{error}. Nothing was run"))
            }
            CallError::NotSent(_) if inside => lost(),
            CallError::NotSent(_) => not_ready(format!("the primary was lost: {error}")),
            CallError::Lost(_) if stake == Stake::Commit => {
                // Over, one way or the other.
                self.forwarded = Forwarded::None;
                WireError::new(
                    "TIDEGATE_INDETERMINATE",
                    format!(
                        "the primary was lost before it answered ({error}): the statement may or \
                         may not have been carried out. Look before you send it again"
                    ),
                )
            }
            CallError::Lost(_) if inside => lost(),
            CallError::Lost(_) => WireError::new(
                "TIDEGATE_NOT_READY",
                format!("the primary was lost: {error}. Nothing was changed; try again"),
            ),
        }
    }
}

fn unreached(url: &str, why: impl std::fmt::Display) -> WireError {
    not_ready(format!(
        "this node is a replica and could not reach the primary at {url}: {why}"
    ))
}

fn not_ready(why: impl std::fmt::Display) -> WireError {
    WireError::new(
        "TIDEGATE_NOT_READY",
        format!("{why}. Nothing was run; try again"),
    )
}

/// Where a statement outside a transaction runs on a replica.
fn place_outside(kind: &Kind, is_behind: bool) -> Place {
    match kind {
        Kind::Read if is_behind => Place::There(Stake::Nothing),
        Kind::Begin(BeginKind::Deferred | BeginKind::Immediate) | Kind::Savepoint(_) => {
            Place::There(Stake::Nothing)
        }
        Kind::Write(_) | Kind::Ddl(_) | Kind::HeaderPragma { .. } => Place::There(Stake::Commit),
        Kind::Empty
        | Kind::Read
        | Kind::Begin(BeginKind::ReadOnly)
        | Kind::ForeignKeys(_)
        | Kind::Commit
        | Kind::Rollback
        | Kind::Release(_)
        | Kind::RollbackTo(_) => Place::Here,
    }
}

/// What a statement inside a forwarded transaction puts at stake. What is not known (the
/// transaction's own tables, for one) may be anything.
fn stake_inside(kind: Option<&Kind>) -> Stake {
    match kind {
        None | Some(Kind::Commit | Kind::Release(_)) => Stake::Commit,
        Some(_) => Stake::Nothing,
    }
}

fn lost() -> WireError {
    WireError::new(
        "STREAM_LOST",
        "the connection to the primary was lost, and the transaction with it: none of its \
         statements took effect. Roll back, or open a new stream, and run the transaction again",
    )
}

fn unexpected() -> WireError {
    WireError::new(
        "TIDEGATE_INDETERMINATE",
        "the primary answered another question than it was asked",
    )
}

fn wire(failure: Failure) -> WireError {
    WireError {
        retryable: failure.retryable,
        message: failure.message,
        code: Cow::Owned(failure.code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_run_here_unless_this_node_is_behind_its_session() {
        assert_eq!(place_outside(&Kind::Read, false), Place::Here);
        let there = Place::There(Stake::Nothing);
        assert_eq!(place_outside(&Kind::Read, true), there);
    }

    #[test]
    fn transactions_run_on_the_primary_unless_they_only_read() {
        let begin = |kind| place_outside(&Kind::Begin(kind), false);
        assert_eq!(begin(BeginKind::ReadOnly), Place::Here);
        for kind in [BeginKind::Deferred, BeginKind::Immediate] {
            assert_eq!(begin(kind), Place::There(Stake::Nothing));
        }
        let savepoint = Kind::Savepoint("a".into());
        assert_eq!(
            place_outside(&savepoint, false),
            Place::There(Stake::Nothing)
        );
    }

    #[test]
    fn only_what_can_commit_is_indeterminate_when_lost() {
        assert_eq!(stake_inside(Some(&Kind::Commit)), Stake::Commit);
        assert_eq!(
            stake_inside(Some(&Kind::Release("a".into()))),
            Stake::Commit
        );
        assert_eq!(stake_inside(None), Stake::Commit);
        assert_eq!(stake_inside(Some(&Kind::Read)), Stake::Nothing);
        assert_eq!(stake_inside(Some(&Kind::Rollback)), Stake::Nothing);
    }
}
