//! A forwarded session, on the side of the primary.
//!
//! One stream is one session of the engine. It lives as long as its stream: whatever ends
//! the stream, a lost connection included, drops the session and so rolls back what is open.
//! A statement whose replica is gone is stopped.

use std::sync::Arc;

use tidegate_engine::{Engine, Role, Seq, Session, meta};
use tidegate_proto::peer::v1 as pb;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::error::Result;
use crate::ids::NodeId;
use crate::parts::{self, Joiner};
use crate::settings::Settings;
use crate::wire::{Answer, Call, Failure, SessionAnswer, SessionCall};

/// A stream that asks to be a session.
pub(crate) struct IncomingSession {
    pub(crate) node: NodeId,
    pub(crate) engine: watch::Receiver<Option<Arc<Engine>>>,
    pub(crate) settings: Settings,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) messages: Streaming<pb::SessionRequest>,
    pub(crate) outbound: mpsc::Sender<Result<pb::SessionReply, Status>>,
    pub(crate) stop: CancellationToken,
}

impl IncomingSession {
    pub(crate) async fn run(mut self) {
        let mut joiner = Joiner::new(self.settings.session_request_bytes_max);
        let opened = match self.receive(&mut joiner).await {
            Some(SessionCall { call, .. }) => self.open(call).await,
            None => return,
        };
        let (mut session, _permit) = match opened {
            Ok(opened) => opened,
            Err(failure) => {
                self.send(refusal(failure)).await;
                return;
            }
        };
        let hello = Answer::Opened(self.node.to_string());
        if !self.send(self.answer(&session, None, hello)).await {
            return;
        }
        while let Some(request) = self.receive(&mut joiner).await {
            let gone = self.outbound.clone();
            let answer = tokio::select! {
                answer = serve(&mut session, request) => answer,
                () = gone.closed() => return,
            };
            let Some((position, answer)) = answer else {
                return;
            };
            if !self.send(self.answer(&session, position, answer)).await {
                return;
            }
        }
    }

    /// The next call; `None` when the stream is to end.
    async fn receive(&mut self, joiner: &mut Joiner) -> Option<SessionCall> {
        loop {
            let message = tokio::select! {
                message = self.messages.message() => message.ok().flatten()?,
                () = self.stop.cancelled() => return None,
                // Nobody may hold an engine that is to be closed.
                _ = self.engine.wait_for(Option::is_none) => return None,
            };
            let decoded = joiner.push(message).and_then(|whole| {
                let whole = whole.map(SessionCall::decode);
                whole.transpose()
            });
            match decoded {
                Ok(Some(call)) => return Some(call),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a forwarded session ends");
                    let status = Status::invalid_argument(error.to_string());
                    self.outbound.send(Err(status)).await.ok();
                    return None;
                }
            }
        }
    }

    async fn open(&self, call: Call) -> Result<(Session, OwnedSemaphorePermit), Failure> {
        let Call::Open { cluster, .. } = call else {
            let message = "the first message of a session must be SessionOpen";
            return Err(Failure::new("TIDEGATE_MALFORMED", message, false));
        };
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| {
            let message = format!("{} runs as many forwarded sessions as it may", self.node);
            Failure::new("TIDEGATE_OVERLOADED", message, true)
        })?;
        let engine = self.engine.borrow().clone();
        let engine = engine.ok_or_else(|| {
            let message = format!("{} has no database open at the moment", self.node);
            Failure::new("TIDEGATE_NOT_READY", message, true)
        })?;
        if engine.role() != Role::Primary {
            let message = format!("{} does not take writes", self.node);
            return Err(Failure::new("TIDEGATE_NOT_READY", message, true));
        }
        let ours = cluster_of(engine.clone()).await?;
        if ours != cluster {
            let message = format!("{} belongs to another cluster ({ours})", self.node);
            return Err(Failure::new("TIDEGATE_REFUSED", message, false));
        }
        Ok((engine.session(), permit))
    }

    fn answer(&self, session: &Session, at: Option<Seq>, answer: Answer) -> SessionAnswer {
        let is_autocommit = session.is_autocommit();
        let head = || {
            let engine = self.engine.borrow();
            engine.as_ref().map(|engine| engine.head().borrow().seq)
        };
        SessionAnswer {
            is_autocommit,
            state: session.state(),
            position: at.or_else(|| head().filter(|_| is_autocommit)),
            answer,
        }
    }

    async fn send(&self, answer: SessionAnswer) -> bool {
        for message in parts::cut(answer.encode()) {
            let sent = self.outbound.send(Ok(message));
            let sent = tokio::time::timeout(self.settings.send_deadline, sent).await;
            if !matches!(sent, Ok(Ok(()))) {
                return false;
            }
        }
        true
    }
}

/// Runs a call: the position it is committed at if it says so, and the answer. `None` ends
/// the stream.
async fn serve(session: &mut Session, request: SessionCall) -> Option<(Option<Seq>, Answer)> {
    if let Some(state) = request.state {
        session.restore(state);
    }
    let outcome = match request.call {
        Call::Execute {
            sql,
            params,
            wants_rows,
        } => {
            let result = session.execute(&sql, params, wants_rows).await;
            result.map(|result| (result.position, Answer::Result(result)))
        }
        Call::Script(sql) => session
            .execute_script(&sql)
            .await
            .map(|()| (None, Answer::Done)),
        Call::Describe(sql) => {
            let described = session.describe(&sql).await;
            described.map(|described| (None, Answer::Description(described)))
        }
        Call::Open { .. } | Call::Close => return None,
    };
    // After an error the head stands for what was committed before it.
    Some(outcome.unwrap_or_else(|error| (None, Answer::Failed(error.into()))))
}

fn refusal(failure: Failure) -> SessionAnswer {
    SessionAnswer {
        is_autocommit: true,
        state: Default::default(),
        position: None,
        answer: Answer::Failed(failure),
    }
}

/// Reads one row, away from the threads that must not block.
async fn cluster_of(engine: Arc<Engine>) -> Result<String, Failure> {
    let read = tokio::task::spawn_blocking(move || {
        let mut connection = engine.store().reader()?;
        let cluster = meta::cluster_id(&mut connection)?;
        connection.close()?;
        Ok::<_, tidegate_engine::Error>(cluster.map_or_else(String::new, |id| id.to_string()))
    });
    let read = read.await.expect("the engine contains its own panics");
    Ok(read?)
}
