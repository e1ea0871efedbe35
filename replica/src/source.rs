//! Feeding one follower: a thread that reads views and sends batches.
//!
//! The thread waits for one of few events: the log's head moved (the commit itself wakes it,
//! nothing polls), the follower said something, a timer is due, the stream is to end. Then it
//! opens at most one read view, reads the batch from what was sent last to the view's head
//! into a spool, computes at most one step of a convergence pass in the same view, ends the
//! view, and only then talks to the network. So no view and no write-ahead log is ever held
//! up by a slow follower; while the window is full nothing is read at all.
//!
//! A step of a pass always goes out right behind the batch that ends at its position, or
//! alone when the follower already has that position.
//!
//! The thread blocks in the engine and waits on the runtime's primitives; it is not itself a
//! task, because the engine does its I/O where it is called. Heartbeats are a task beside it,
//! so that reading a large batch is not taken for silence.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use tidegate_engine::adapter::Connection;
use tidegate_engine::{
    Batch, BatchLimits, Engine, Error as EngineError, FinalsKnown, Head, ReadView, Seq, clock,
};
use tidegate_proto::PART_BYTES_MAX;
use tidegate_proto::peer::v1 as pb;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use crate::asking::{self, Question};
use crate::error::{Error, Result};
use crate::followers::{Attached, Command};
use crate::history::SnapshotReason;
use crate::intake::{BatchEnd, PartHead};
use crate::lag::HeadTrail;
use crate::pass::{Pass, PassLimits, Step};
use crate::progress::Progress;
use crate::proof::{PassProgress, PassReport, Verdict};
use crate::settings::Settings;
use crate::window::Window;
use crate::wire::{self, CheckReply, FromFollower, Greeting};

/// How many views in a row may be spoiled by changes of the schema before the stream ends.
const SCHEMA_RETRIES_MAX: u32 = 20;

/// What the follower's side of the stream delivers.
pub type Inbound = mpsc::Receiver<Result<FromFollower>>;
/// Where messages go.
pub type Outbound = mpsc::Sender<Result<pb::SourceMessage, Status>>;

/// Feeds one follower. Made after the handshake; runs on a thread of its own.
pub struct Source<'a> {
    engine: Arc<Engine>,
    settings: Settings,
    runtime: Handle,
    attached: Attached<'a>,
    inbound: Inbound,
    outbound: Outbound,
    head: watch::Receiver<Head>,
    /// The head when the stream began: up to it the trail knows no commit times.
    goal: Seq,
    progress: Progress,
    window: Window,
    trail: HeadTrail,
    known: FinalsKnown,
    pass: Option<Running>,
    wanted: Option<Wanted>,
    passes: u64,
    heard_last: Instant,
}

/// A pass under way.
struct Running {
    pass: Pass,
    begun: Instant,
    /// Schema statements up to here are known to the plan.
    schema_seen: Seq,
}

/// A pass that somebody asked for.
struct Wanted {
    background: bool,
}

enum Event {
    Head,
    Heard(Result<FromFollower>),
    Command(Command),
    Timer,
    Closed,
}

impl<'a> Source<'a> {
    /// A source for a follower that was accepted at `applied`, which may be far behind.
    pub fn new(
        engine: Arc<Engine>,
        settings: Settings,
        runtime: Handle,
        attached: Attached<'a>,
        channels: (Inbound, Outbound),
        applied: Seq,
    ) -> Self {
        let now = Instant::now();
        let (inbound, outbound) = channels;
        let head = engine.head();
        let goal = head.borrow().seq;
        Self {
            head,
            goal,
            engine,
            settings,
            runtime,
            attached,
            inbound,
            outbound,
            progress: Progress::new(applied),
            window: Window::new(settings.window),
            trail: HeadTrail::default(),
            known: FinalsKnown::default(),
            pass: None,
            wanted: None,
            passes: 0,
            heard_last: now,
        }
    }

    /// Feeds the follower until the stream ends. The error is the reason; `Ok` means that the
    /// other side, or a newer stream, ended it.
    pub fn run(mut self, connection: &mut Connection) -> Result<()> {
        let outcome = self.feed(connection);
        let why = match &outcome {
            Ok(()) => "closed".to_owned(),
            Err(error) => error.to_string(),
        };
        self.attached.ended(&why);
        if let Err(error) = &outcome {
            self.outbound.try_send(Err(status(error))).ok();
        }
        outcome
    }

    fn feed(&mut self, connection: &mut Connection) -> Result<()> {
        loop {
            self.ship(connection)?;
            let event = self.wait();
            if self.handle(event)?.is_break() {
                return Ok(());
            }
            while let Ok(heard) = self.inbound.try_recv() {
                self.heard(heard?)?;
            }
            self.look_at_clock()?;
        }
    }

    /// Waits for the next event, outside of any view.
    fn wait(&mut self) -> Event {
        let now = Instant::now();
        let mut wake_at = now + self.settings.heartbeat_interval;
        if let Some(at) = self
            .pass
            .as_ref()
            .and_then(|running| running.pass.wake_at())
        {
            wake_at = wake_at.min(at);
        }
        let has_room = self.window.has_room();
        let (head, inbound) = (&mut self.head, &mut self.inbound);
        let attached = &mut self.attached;
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = attached.cancel.cancelled() => Event::Closed,
                heard = inbound.recv() => heard.map_or(Event::Closed, Event::Heard),
                Some(command) = attached.commands.recv() => Event::Command(command),
                moved = head.changed(), if has_room => match moved {
                    Ok(()) => Event::Head,
                    Err(_) => Event::Closed,
                },
                () = tokio::time::sleep(wake_at.saturating_duration_since(now)) => Event::Timer,
            }
        })
    }

    fn handle(&mut self, event: Event) -> Result<ControlFlow<()>> {
        match event {
            Event::Closed => return Ok(ControlFlow::Break(())),
            Event::Heard(heard) => self.heard(heard?)?,
            Event::Command(Command::Pass) => self.wanted = Some(Wanted { background: false }),
            Event::Command(Command::Repair) => {
                self.send(wire::repair_order("asked for at the source"))?;
            }
            Event::Head | Event::Timer => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn heard(&mut self, heard: FromFollower) -> Result<()> {
        self.heard_last = Instant::now();
        match heard {
            FromFollower::Hello(_) => return Err(Error::protocol("a second Hello")),
            FromFollower::Progress { received, applied } => {
                self.progress.heard(received, applied)?;
                self.window.applied(applied);
            }
            FromFollower::CheckReply(reply) => self.answered(reply)?,
            FromFollower::PassRequest { background } => {
                let wanted = self.wanted.take();
                let background = background && wanted.is_none_or(|wanted| wanted.background);
                self.wanted = Some(Wanted { background });
            }
        }
        self.publish();
        Ok(())
    }

    /// What only time can tell: silence, an answer overdue.
    fn look_at_clock(&mut self) -> Result<()> {
        let now = Instant::now();
        let silence = now.duration_since(self.heard_last);
        if silence > self.settings.silence_max() {
            return Err(Error::network(format!(
                "the follower has been silent for {} ms",
                silence.as_millis()
            )));
        }
        if let Some(running) = &mut self.pass
            && running.pass.expire(now)
        {
            self.close_pass(Verdict::Inconclusive, "the follower did not answer in time");
        }
        Ok(())
    }

    /// Ships what is due. When the schema changes between the view's snapshot and one of its
    /// statements the view is of no use, and another one is begun: nothing was sent yet.
    fn ship(&mut self, connection: &mut Connection) -> Result<()> {
        for _ in 0..SCHEMA_RETRIES_MAX {
            match self.ship_one_view(connection) {
                Err(error) if error.is_schema_change() => {}
                shipped => return shipped,
            }
        }
        self.ship_one_view(connection)
    }

    /// Reads and sends what is due: a batch, a step of a pass, or both of one view.
    fn ship_one_view(&mut self, connection: &mut Connection) -> Result<()> {
        let head = *self.head.borrow_and_update();
        self.note_head(head);
        if !self.window.has_room() {
            return Ok(());
        }
        let now = Instant::now();
        let step_due = match &self.pass {
            Some(running) => running.pass.next(now).is_some(),
            None => self.wanted.is_some(),
        };
        if head.seq <= self.progress.sent() && !step_due {
            return Ok(());
        }
        let gate = self.engine.store().gate().clone();
        let mut view = ReadView::begin(connection, &gate)?;
        let batch = self.read_batch(&mut view, head)?;
        let at = batch
            .as_ref()
            .map_or(self.progress.sent(), |batch| batch.to);
        let question = if step_due && at == view.head() {
            self.question(&mut view, now)
        } else {
            None
        };
        drop(view);
        if let Some(batch) = batch {
            self.send_batch(&batch, head)?;
        }
        if let Some(question) = question {
            self.send_question(question)?;
        }
        self.publish();
        Ok(())
    }

    fn read_batch(&mut self, view: &mut ReadView<'_>, head: Head) -> Result<Option<Batch>> {
        let from = self.progress.sent();
        if view.head() <= from {
            return Ok(None);
        }
        let limits = BatchLimits {
            bytes_max: self.settings.batch_bytes_max,
            memory_max: self.settings.spool_memory_bytes,
            committed_ms: committed_ms(view.head(), head),
            ..BatchLimits::default()
        };
        let dir = self.engine.store().dir();
        match view.read_batch(from, &mut self.known, dir, &limits) {
            Ok(batch) => Ok(batch),
            Err(EngineError::SnapshotRequired(text)) => {
                let reason = if from < *self.engine.floor().borrow() {
                    SnapshotReason::BelowFloor
                } else {
                    SnapshotReason::Backlog
                };
                self.send(Greeting::SnapshotRequired(reason, text.clone()).encode())?;
                Err(EngineError::SnapshotRequired(text).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The next step of the pass, computed in the view. An error here spoils the pass, not
    /// the stream.
    fn question(&mut self, view: &mut ReadView<'_>, now: Instant) -> Option<Question> {
        if let Err(error) = self.prepare_pass(view, now) {
            if error.is_schema_change() {
                return None;
            }
            tracing::warn!(%error, "a convergence pass cannot go on");
            let running = self.pass.as_mut()?;
            running.pass.fail(error.to_string());
        }
        let running = self.pass.as_mut()?;
        let step = running.pass.next(now)?;
        if step == Step::End && running.pass.failed().is_some() {
            return Some(Question::give_up(view));
        }
        match Question::compute(view, step) {
            Ok(question) => Some(question),
            // The step is still due, and the next view can answer it.
            Err(error) if error.is_schema_change() => None,
            Err(error) => {
                tracing::warn!(%error, "a convergence pass cannot go on");
                running.pass.fail(error.to_string());
                Some(Question::give_up(view))
            }
        }
    }

    /// Begins the pass that is wanted, or tells the one under way what became of the tables.
    fn prepare_pass(&mut self, view: &mut ReadView<'_>, now: Instant) -> Result<()> {
        if let Some(running) = &mut self.pass {
            if let Some(moves) = asking::table_moves(view, running.schema_seen)? {
                running.pass.tables_moved(&moves);
            }
            running.schema_seen = view.head();
            return Ok(());
        }
        if self.wanted.is_none() {
            return Ok(());
        }
        // Still wanted if this fails.
        let tables = asking::tables(view)?;
        let Some(wanted) = self.wanted.take() else {
            return Ok(());
        };
        self.passes += 1;
        let limits = PassLimits {
            answer_deadline: self.settings.answer_deadline,
            duty_percent: match wanted.background {
                true => self.settings.background_duty_percent,
                false => 100,
            },
        };
        self.pass = Some(Running {
            pass: Pass::new(self.passes, tables, limits),
            begun: now,
            schema_seen: view.head(),
        });
        Ok(())
    }

    fn send_batch(&mut self, batch: &Batch, head: Head) -> Result<()> {
        let total_bytes = batch.spool.len();
        let part_bytes = self.settings.batch_part_bytes.min(PART_BYTES_MAX);
        let mut offset = 0;
        while let Some(part) = batch.spool.part(offset, part_bytes)? {
            offset += part.bytes.len() as u64;
            let end = (offset == total_bytes).then(|| BatchEnd {
                total_bytes,
                hash: batch.spool.hash(),
                committed_ms: millis(committed_ms(batch.to, head)),
            });
            if end.is_some() {
                self.progress.send(batch.from, batch.to);
                self.window.sent(batch.to, total_bytes);
            }
            let place = PartHead {
                from: batch.from,
                to: batch.to,
                offset: part.offset,
                crc32c: part.crc32c,
                end,
            };
            self.send(wire::batch_part(&place, part.bytes.into()))?;
        }
        self.attached
            .publish(|status| status.bytes_sent += total_bytes);
        Ok(())
    }

    fn send_question(&mut self, question: Question) -> Result<()> {
        let now = Instant::now();
        let Some(running) = &mut self.pass else {
            return Ok(());
        };
        let message = question.ask(&mut running.pass, now);
        self.send(message)
    }

    /// Hands a message to the network. Waits while it is slow, up to the send deadline.
    fn send(&mut self, message: pb::SourceMessage) -> Result<()> {
        let message = match self.outbound.try_send(Ok(message)) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(gone()),
            Err(mpsc::error::TrySendError::Full(message)) => message,
        };
        let deadline = self.settings.send_deadline;
        let (outbound, cancel) = (&self.outbound, &self.attached.cancel);
        self.runtime.block_on(async {
            tokio::select! {
                () = cancel.cancelled() => Err(Error::network("the stream was ended")),
                sent = tokio::time::timeout(deadline, outbound.send(message)) => match sent {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) => Err(gone()),
                    Err(_) => Err(Error::network(format!(
                        "the follower took nothing for {} s",
                        deadline.as_secs()
                    ))),
                },
            }
        })
    }

    fn answered(&mut self, reply: CheckReply) -> Result<()> {
        let Some(running) = &mut self.pass else {
            // Of a pass that was given up because this answer was late.
            return Ok(());
        };
        if reply.answer.pass < running.pass.number() {
            return Ok(());
        }
        let text = reply.answer.text.clone();
        running.pass.answered(reply.answer, Instant::now())?;
        if running.pass.is_over() {
            let verdict = reply.verdict.unwrap_or(Verdict::Inconclusive);
            self.close_pass(verdict, &text);
        }
        Ok(())
    }

    fn close_pass(&mut self, verdict: Verdict, text: &str) {
        let Some(Running { pass, begun, .. }) = self.pass.take() else {
            return;
        };
        let now = Instant::now();
        let why = match verdict {
            Verdict::Inconclusive => pass.failed().unwrap_or(text).to_owned(),
            Verdict::Equal | Verdict::Diverged => String::new(),
        };
        let report = PassReport {
            verdict,
            at_seq: self.progress.applied(),
            ended: now,
            took: now.duration_since(begun),
            rows: pass.rows(),
            tables: pass.tables().0 as u64,
            why,
            unequal: pass.unequal().to_vec(),
            differences: pass.differences().to_vec(),
        };
        self.attached.publish(|status| {
            status.report = Some(report);
            status.passes += 1;
        });
        self.publish();
    }

    fn note_head(&mut self, head: Head) {
        self.trail.note(head.seq, millis(head.committed_ms));
        self.trail.forget(self.progress.applied());
    }

    fn publish(&self) {
        let applied = self.progress.applied();
        let mut lag_ms = self.trail.lag_ms(applied, millis(clock::now_ms()));
        if applied < self.goal
            && let Some(since) = self.attached.behind_since
        {
            let absent = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            lag_ms = lag_ms.max(absent);
        }
        self.attached.publish(|status| {
            status.heard = self.heard_last;
            status.sent = self.progress.sent();
            status.received = self.progress.received();
            status.applied = applied;
            if let Some(slot) = &mut status.slot {
                slot.from = applied;
            }
            status.bytes_under_way = self.window.bytes();
            status.lag_ms = lag_ms;
            status.lag_commits = self.trail.commits_after(applied);
            status.lag_taken = Instant::now();
            status.pass = self.pass.as_ref().map(|running| PassProgress {
                rows: running.pass.rows(),
                checks: running.pass.checks(),
            });
        });
    }
}

/// When the end of a batch was committed. A view may be newer than the head that was watched,
/// but not by much.
fn committed_ms(to: Seq, head: Head) -> i64 {
    if to == head.seq {
        head.committed_ms
    } else {
        clock::now_ms()
    }
}

fn millis(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

fn gone() -> Error {
    Error::network("the follower is gone")
}

fn status(error: &Error) -> Status {
    match error {
        Error::Protocol(_) | Error::Invalid { .. } => Status::invalid_argument(error.to_string()),
        Error::Engine(EngineError::SnapshotRequired(_)) => {
            Status::failed_precondition(error.to_string())
        }
        Error::Engine(_) => Status::internal(error.to_string()),
        Error::Network(_) => Status::unavailable(error.to_string()),
    }
}
