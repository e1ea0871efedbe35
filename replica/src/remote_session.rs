//! A session at another node, on the side of the one that forwards.
//!
//! What matters about a failure is whether the call may have been carried out, so opening is
//! a step of its own: until the other node has said that the session is open, nothing was
//! asked. A session that fails in the middle of a call is of no further use.

use std::time::Duration;

use tidegate_engine::session::SessionState;
use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::replication_client::ReplicationClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::dial;
use crate::error::{Error, Result};
use crate::parts::{self, Joiner};
use crate::settings::Settings;
use crate::wire::{Answer, Call, Failure, SessionAnswer, SessionCall};

/// An open session.
pub struct RemoteSession {
    requests: mpsc::Sender<pb::SessionRequest>,
    replies: Streaming<pb::SessionReply>,
    joiner: Joiner,
    settings: Settings,
}

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// It was not carried out, and never will be.
    #[error("{0}")]
    NotSent(Error),
    /// It is larger than it may be. Nothing was sent, and the session is as it was.
    #[error("the request has {0} bytes; at most {1} can be forwarded")]
    TooLarge(usize, usize),
    /// It may or may not have been carried out.
    #[error("{0}")]
    Lost(Error),
}

/// Why a session was not opened. Nothing was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The other node does not want to.
    #[error("{}", .0.message)]
    Refused(Failure),
    /// It was not reached.
    #[error("{0}")]
    Unreached(Error),
}

impl RemoteSession {
    /// Opens one, for a node of this cluster and name.
    pub async fn open(
        client: &mut ReplicationClient<Channel>,
        cluster: &str,
        node: &str,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let (requests, queued) = mpsc::channel(settings.messages_queued_max);
        let call = Call::Open {
            cluster: cluster.to_owned(),
            node: node.to_owned(),
        };
        let open = SessionCall { state: None, call }.encode();
        requests.try_send(open).expect("the queue is new");
        let opened = client.session(dial::request(ReceiverStream::new(queued)));
        let replies = opened.await.map_err(|s| OpenError::Unreached(s.into()))?;
        let mut session = Self {
            requests,
            replies: replies.into_inner(),
            joiner: Joiner::new(settings.session_reply_bytes_max),
            settings: *settings,
        };
        match session
            .receive()
            .await
            .map_err(OpenError::Unreached)?
            .answer
        {
            Answer::Opened(_) => Ok(session),
            Answer::Failed(failure) => Err(OpenError::Refused(failure)),
            _ => {
                let error = Error::protocol("SessionOpen was answered with something else");
                Err(OpenError::Unreached(error))
            }
        }
    }

    /// False once the other side ended the stream. Call it while nothing is asked.
    pub async fn is_alive(&mut self) -> bool {
        let word = self.replies.message();
        // Looks once and does not wait.
        tokio::time::timeout(Duration::ZERO, word).await.is_err()
    }

    /// Asks, and waits for the answer.
    pub async fn ask(
        &mut self,
        state: Option<SessionState>,
        call: Call,
        deadline: Duration,
    ) -> Result<SessionAnswer, CallError> {
        let request = SessionCall { state, call }.encode();
        let (bytes, max) = (
            prost::Message::encoded_len(&request),
            self.settings.session_request_bytes_max,
        );
        if bytes > max {
            return Err(CallError::TooLarge(bytes, max));
        }
        for message in parts::cut(request) {
            let sent = self.requests.send(message);
            let sent = tokio::time::timeout(self.settings.send_deadline, sent).await;
            // Without its last part a call is not carried out.
            let error = match sent {
                Ok(Ok(())) => continue,
                Ok(Err(_)) => Error::network("the primary ended the session"),
                Err(_) => Error::network("the primary takes no messages"),
            };
            return Err(CallError::NotSent(error));
        }
        match tokio::time::timeout(deadline, self.receive()).await {
            Ok(answer) => answer.map_err(CallError::Lost),
            Err(_) => Err(CallError::Lost(Error::network(format!(
                "no answer within {deadline:?}"
            )))),
        }
    }

    async fn receive(&mut self) -> Result<SessionAnswer> {
        loop {
            let message = self.replies.message().await?;
            let message = message.ok_or_else(|| Error::network("the primary ended the session"))?;
            if let Some(whole) = self.joiner.push(message)? {
                return SessionAnswer::decode(whole);
            }
        }
    }
}
