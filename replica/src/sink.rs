//! One stream, seen from the follower: from the first message to the reason why it ended.
//!
//! Everything happens in one loop over few events, and nothing in it waits for a disk: parts
//! go into a spool, whole batches to the applying thread, and what that thread reports goes
//! back to the source. When the thread has enough to do the stream is not read, which the
//! source feels in its window.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use tidegate_engine::spool::Spool;
use tidegate_engine::{Engine, Error as EngineError, Seq};
use tidegate_proto::peer::v1 as pb;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::applying::{Applied, Applying, Event, Received, Work};
use crate::check::Outcome;
use crate::comparing::{Compared, Comparison};
use crate::dial;
use crate::error::{Error, Result};
use crate::follower::{Follower, Request};
use crate::history::{SnapshotReason, Standing};
use crate::intake::{Intake, PartHead, Verdict as Judged};
use crate::pass::Answer;
use crate::proof::{self, PassClosing, Verdict};
use crate::state::Phase;
use crate::wire::{self, Accepted, FromSource, Hello, Refused, SourceClock};

/// Messages that wait for the network. A source that takes none of them is gone.
const OUTBOUND_MAX: usize = 256;
/// A pass that was asked for and did not begin within this time is asked for again.
const PASS_BEGINS_WITHIN: Duration = Duration::from_secs(30);

/// Why a stream ended.
#[derive(Debug)]
pub enum Ended {
    /// This process stops.
    Stop,
    /// The connection is gone, silent, or the source broke the protocol.
    Lost(Error),
    /// The log cannot feed this node.
    SnapshotRequired(SnapshotReason, String),
    /// The source does not want this node.
    Refused(Refused),
    /// An operator wants the source's side here, whatever this node holds.
    Repair(String),
    /// The database of this node failed.
    Failed(EngineError),
}

/// A stream that was accepted.
pub struct Sink<'a> {
    follower: &'a mut Follower,
    engine: &'a Arc<Engine>,
    applying: &'a mut Applying,
    number: u64,
    messages: Streaming<pb::SourceMessage>,
    out: mpsc::Sender<pb::FollowerMessage>,
    intake: Intake,
    spool: Option<Spool>,
    /// Work that the applying thread has no room for yet; while there is some the stream is
    /// not read.
    pending: Option<Work>,
    comparing: bool,
    pass_asked: Option<Instant>,
    /// When a batch was applied last, until the time after it was used.
    busy: Option<Instant>,
    /// The head at the handshake: what must be applied before the node has caught up.
    goal: Seq,
    applied: Seq,
    silence_max: Duration,
}

/// Dials, introduces this node, and gives the stream if it was accepted.
pub async fn open<'a>(
    follower: &'a mut Follower,
    engine: &'a Arc<Engine>,
    applying: &'a mut Applying,
    hello: Hello,
) -> Result<(Sink<'a>, Accepted), Ended> {
    let settings = follower.settings();
    let url = follower.source_url().to_owned();
    let (out, outgoing) = mpsc::channel(OUTBOUND_MAX);
    let applied = hello.standing.seq;
    out.try_send(hello.encode()).expect("the queue is empty");
    let greeting = async {
        let mut client = dial::dial(&url, &settings).await?;
        let stream = client.follow(dial::request(ReceiverStream::new(outgoing)));
        let mut messages = stream.await?.into_inner();
        let first = messages.message().await?;
        let first = first.ok_or_else(|| Error::protocol("the stream ended without a word"))?;
        Ok::<_, Error>((messages, FromSource::decode(first)?))
    };
    let greeted = tokio::time::timeout(settings.dial_deadline * 2, greeting).await;
    let (messages, first) = greeted
        .map_err(|_| Ended::Lost(Error::network(format!("{url} did not answer in time"))))?
        .map_err(Ended::Lost)?;
    let accepted = match first {
        FromSource::Accepted(accepted) => accepted,
        FromSource::SnapshotRequired(reason, text) => {
            return Err(Ended::SnapshotRequired(reason, text));
        }
        FromSource::Refused(refused) => return Err(Ended::Refused(refused)),
        _ => {
            return Err(Ended::Lost(Error::protocol(
                "the first message is no greeting",
            )));
        }
    };
    let interval = Duration::from_millis(u64::from(accepted.heartbeat_interval_ms));
    let sink = Sink {
        number: follower.next_stream(),
        follower,
        engine,
        applying,
        messages,
        out,
        intake: Intake::new(applied, settings.batch_bytes_max),
        spool: None,
        pending: None,
        comparing: false,
        pass_asked: None,
        busy: Some(Instant::now()),
        goal: accepted.head,
        applied,
        silence_max: interval * settings.silent_intervals_max,
    };
    Ok((sink, accepted))
}

impl Sink<'_> {
    /// Takes note of the source's first word.
    pub async fn accept(self, ours: &Standing, accepted: &Accepted) -> Result<Self, Ended> {
        self.follower.accepted(self.engine, ours, accepted).await?;
        Ok(self)
    }

    /// Follows until the stream ends.
    pub async fn follow(mut self, stop: &CancellationToken) -> Ended {
        let ended = match self.run(stop).await {
            Ok(()) => Ended::Stop,
            Err(ended) => ended,
        };
        let why = match &ended {
            Ended::Stop => "this node stops".to_owned(),
            Ended::Lost(error) => error.to_string(),
            other => format!("{other:?}"),
        };
        self.follower
            .prover()
            .interrupt(&why, self.applied, Instant::now());
        ended
    }

    async fn run(&mut self, stop: &CancellationToken) -> Result<(), Ended> {
        let interval = self.follower.settings().heartbeat_interval;
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.publish();
            let work = self.applying.work.clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                event = self.applying.events.recv() => self.on_event(event)?,
                permit = work.reserve(), if self.pending.is_some() => {
                    let permit = permit.map_err(|_| Ended::Failed(EngineError::Closed))?;
                    permit.send(self.pending.take().expect("checked in this branch"));
                }
                message = self.messages.message(), if self.pending.is_none() => {
                    self.on_message(message)?;
                }
                Some(request) = self.follower.requests().recv() => self.on_request(request)?,
                _ = ticks.tick() => self.on_tick()?,
            }
        }
    }

    fn on_message(
        &mut self,
        message: Result<Option<pb::SourceMessage>, tonic::Status>,
    ) -> Result<(), Ended> {
        let lost = |error: Error| Ended::Lost(error);
        let message = message.map_err(|status| lost(status.into()))?;
        let message = message.ok_or_else(|| lost(Error::network("the source ended the stream")))?;
        self.follower.heard();
        match FromSource::decode(message).map_err(lost)? {
            FromSource::Part(head, data) => self.on_part(&head, &data),
            FromSource::Heartbeat(clock) => {
                self.on_clock(clock);
                Ok(())
            }
            FromSource::PassBegin(begin) => self.compare(Comparison::Begin(begin)),
            FromSource::Check(check) => self.compare(Comparison::Range(check)),
            FromSource::PassEnd(end) => self.compare(Comparison::End(end)),
            FromSource::SnapshotRequired(reason, text) => {
                Err(Ended::SnapshotRequired(reason, text))
            }
            FromSource::RepairOrder(why) => Err(Ended::Repair(why)),
            FromSource::Refused(refused) => Err(Ended::Refused(refused)),
            FromSource::Accepted(_) => Err(lost(Error::protocol("accepted twice"))),
        }
    }

    fn on_part(&mut self, head: &PartHead, data: &Bytes) -> Result<(), Ended> {
        let judged = self.intake.part(head, data).map_err(Ended::Lost)?;
        let spool = match judged {
            Judged::Duplicate => return Ok(()),
            Judged::First => self.spool.insert(Spool::new(
                self.engine.store().dir(),
                self.follower.settings().spool_memory_bytes,
            )),
            Judged::Next => self.spool.as_mut().expect("a first part came before"),
        };
        spool.append(data).map_err(Ended::Failed)?;
        if let Some(end) = head.end {
            let spool = self.spool.take().expect("it was just appended to");
            self.follower
                .note_received(head.to, end.committed_ms, spool.len());
            self.pending = Some(Work::Batch(Received {
                spool,
                to: head.to,
                committed_ms: end.committed_ms,
            }));
        }
        Ok(())
    }

    fn on_clock(&mut self, clock: SourceClock) {
        self.follower.note_clock(clock);
        self.engine.note_source_floor(clock.floor);
    }

    /// A comparison is queued behind the batch that it belongs to.
    fn compare(&mut self, comparison: Comparison) -> Result<(), Ended> {
        if self.comparing {
            let error = Error::protocol("a comparison before the last one was answered");
            return Err(Ended::Lost(error));
        }
        self.intake.check(comparison.seq()).map_err(Ended::Lost)?;
        if matches!(comparison, Comparison::Begin(_)) {
            self.pass_asked = None;
        }
        self.comparing = true;
        self.pending = Some(Work::Compare(self.number, comparison));
        Ok(())
    }

    fn on_event(&mut self, event: Option<Event>) -> Result<(), Ended> {
        match event {
            Some(Event::Applied(applied)) => self.on_applied(applied),
            Some(Event::Compared(stream, compared)) if stream == self.number => {
                self.comparing = false;
                self.on_compared(*compared)
            }
            // Of a stream that is gone; so is the pass.
            Some(Event::Compared(..)) => Ok(()),
            Some(Event::Failed(error)) => Err(Ended::Failed(error)),
            None => Err(Ended::Failed(EngineError::Closed)),
        }
    }

    fn on_applied(&mut self, applied: Applied) -> Result<(), Ended> {
        self.applied = applied.to;
        self.busy = Some(Instant::now());
        self.follower.note_applied(applied);
        self.say(wire::ack(self.intake.received(), applied.to))
    }

    /// Enters the result into the book and answers the source.
    fn on_compared(&mut self, compared: Compared) -> Result<(), Ended> {
        let (pass, number) = compared.comparison.number();
        if compared.outcome == Outcome::Again {
            // It does not count: nothing is entered, and the source asks again.
            return self.say(wire::check_result(&answer(compared, pass, number), None));
        }
        let now = Instant::now();
        let prover = self.follower.prover();
        let mut verdict = None;
        match &compared.comparison {
            Comparison::Begin(begin) => {
                prover.begin(pass, begin.seq, compared.outcome, &compared.text, now);
            }
            Comparison::Range(check) => prover
                .compared(proof::Compared {
                    pass,
                    number,
                    table: check.table.clone(),
                    restart: check.restart,
                    range: check.range,
                    seq: check.seq,
                    bisecting: check.bisecting,
                    outcome: compared.outcome,
                    rows: (check.digest.rows, compared.rows),
                    text: compared.text.clone(),
                    differences: compared.differences.clone(),
                })
                .map_err(Ended::Lost)?,
            Comparison::End(end) => {
                let closing = PassClosing {
                    pass,
                    seq: end.seq,
                    checks: end.checks,
                    aborted: end.aborted.clone(),
                    outcome: compared.outcome,
                    text: compared.text.clone(),
                    tables: compared.tables.clone(),
                };
                verdict = Some(prover.end(&closing, now).map_err(Ended::Lost)?);
            }
        }
        if let Some(verdict) = verdict {
            self.announce(verdict);
        }
        self.say(wire::check_result(&answer(compared, pass, number), verdict))
    }

    fn announce(&mut self, verdict: Verdict) {
        let proof = self.follower.prover().proof();
        let Some(report) = &proof.last else {
            return;
        };
        let summary = report.summary();
        match verdict {
            Verdict::Equal => tracing::info!(summary, "a convergence pass ended"),
            Verdict::Inconclusive => tracing::warn!(summary, "a convergence pass ended"),
            Verdict::Diverged => tracing::error!(summary, "this node has diverged"),
        }
    }

    fn on_request(&mut self, request: Request) -> Result<(), Ended> {
        match request {
            Request::Pass { why } => self.ask_for_pass(&why, false),
            Request::Repair { why } => Err(Ended::Repair(why)),
        }
    }

    fn on_tick(&mut self) -> Result<(), Ended> {
        let now = Instant::now();
        if let Some(silence) = self.follower.silence(now).filter(|s| *s > self.silence_max) {
            return Err(Ended::Lost(Error::network(format!(
                "the source has been silent for {} ms",
                silence.as_millis()
            ))));
        }
        self.say(wire::follower_heartbeat(
            self.intake.received(),
            self.applied,
        ))?;
        self.use_idle_time(now);
        if self.applied < self.goal {
            return Ok(());
        }
        match self.follower.pass_due(now) {
            Some((why, background)) if self.may_ask(now) => self.ask_for_pass(why, background),
            _ => Ok(()),
        }
    }

    /// Once after each busy time; a full queue is not idle.
    fn use_idle_time(&mut self, now: Instant) {
        let idle = self.engine.options().checkpoint_idle;
        let is_idle = |since: &Instant| now.duration_since(*since) >= idle;
        if self.busy.take_if(|since| is_idle(since)).is_some() {
            self.applying.work.try_send(Work::Idle).ok();
        }
    }

    fn may_ask(&self, now: Instant) -> bool {
        self.pass_asked
            .is_none_or(|asked| now.duration_since(asked) > PASS_BEGINS_WITHIN)
    }

    fn ask_for_pass(&mut self, why: &str, background: bool) -> Result<(), Ended> {
        self.pass_asked = Some(Instant::now());
        self.say(wire::pass_request(why, background))
    }

    fn say(&self, message: pb::FollowerMessage) -> Result<(), Ended> {
        self.out
            .try_send(message)
            .map_err(|_| Ended::Lost(Error::network("the source takes no messages")))
    }

    fn publish(&mut self) {
        let phase = if self.applied < self.goal {
            Phase::CatchingUp
        } else {
            Phase::Following
        };
        self.follower.publish(phase, "");
    }
}

fn answer(compared: Compared, pass: u64, number: u64) -> Answer {
    let outcome: Outcome = compared.outcome;
    Answer {
        pass,
        number,
        outcome,
        rows: compared.rows,
        text: compared.text,
        differences: compared.differences,
        took: compared.took,
    }
}
