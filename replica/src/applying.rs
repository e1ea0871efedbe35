//! The thread that owns a replica's only writing connection.
//!
//! Work comes in the order of the stream: batches, and comparisons that belong between them.
//! The first batch that cannot be applied is the last: nothing behind it is looked at, and
//! nothing is ever skipped.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_engine::spool::Spool;
use tidegate_engine::{Applier, Engine, Error as EngineError, Head, Seq};
use tokio::sync::{mpsc, oneshot};

use crate::comparing::{Compared, Comparer, Comparison};
use crate::error::{Error, Result};

/// Results that wait to be read. When they are full the thread waits.
const EVENTS_MAX: usize = 256;

/// Something to do.
pub enum Work {
    /// A whole batch.
    Batch(Received),
    /// A comparison, of the stream with this number.
    Compare(u64, Comparison),
    /// Nothing has come for a while: time for what can wait.
    Idle,
    /// Answers when everything before it is done, with the position reached.
    Barrier(oneshot::Sender<Seq>),
}

/// A batch that is wholly here.
pub struct Received {
    /// Its bytes.
    pub spool: Spool,
    /// Position after it.
    pub to: Seq,
    /// When the source committed it, on its clock.
    pub committed_ms: u64,
}

/// What came of it.
#[derive(Debug)]
pub enum Event {
    /// A batch is durable.
    Applied(Applied),
    /// A comparison of the stream with this number is done.
    Compared(u64, Box<Compared>),
    /// A batch could not be applied. Nothing else follows.
    Failed(EngineError),
}

/// A durable batch.
#[derive(Debug, Clone, Copy)]
pub struct Applied {
    /// Position after it.
    pub to: Seq,
    /// When the source committed it, on its clock.
    pub committed_ms: u64,
    /// Rows put.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time that applying took.
    pub took: Duration,
}

/// The running thread.
pub struct Applying {
    /// Where work goes.
    pub work: mpsc::Sender<Work>,
    /// Where results come from.
    pub events: mpsc::Receiver<Event>,
    thread: JoinHandle<()>,
}

impl Applying {
    /// Starts the thread.
    pub fn start(engine: Arc<Engine>, applier: Applier, work_queued_max: usize) -> Result<Self> {
        let (work, queue) = mpsc::channel(work_queued_max);
        let (results, events) = mpsc::channel(EVENTS_MAX);
        let comparer = Comparer::start(engine.clone())?;
        let worker = Worker {
            engine,
            applier,
            comparer,
            results,
        };
        let thread = std::thread::Builder::new()
            .name("apply".into())
            .stack_size(16 << 20)
            .spawn(move || worker.run(queue))
            .map_err(Error::network)?;
        Ok(Self {
            work,
            events,
            thread,
        })
    }

    /// Position reached when all work queued so far is done. Results of that work are dropped.
    pub async fn settle(&mut self) -> Result<Seq, EngineError> {
        let (reached, position) = oneshot::channel();
        let barrier = Work::Barrier(reached);
        let work = self.work.clone();
        let events = &mut self.events;
        let answer = async {
            work.send(barrier).await.map_err(|_| EngineError::Closed)?;
            position.await.map_err(|_| EngineError::Closed)
        };
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(Event::Failed(error)) => return Err(error),
                    Some(_) => {}
                    None => return Err(EngineError::Closed),
                },
                position = &mut answer => return position,
            }
        }
    }

    /// Finishes the work queued and ends the thread. Blocks.
    pub fn stop(self) {
        drop(self.work);
        drop(self.events);
        if self.thread.join().is_err() {
            tracing::error!("the applying thread had panicked");
        }
    }
}

struct Worker {
    engine: Arc<Engine>,
    applier: Applier,
    comparer: Comparer,
    results: mpsc::Sender<Event>,
}

impl Worker {
    fn run(mut self, mut queue: mpsc::Receiver<Work>) {
        while let Some(work) = queue.blocking_recv() {
            match work {
                Work::Batch(received) => match self.apply(received) {
                    Ok(applied) => {
                        self.tell(Event::Applied(applied));
                        self.engine.maintain(false);
                    }
                    Err(error) => {
                        tracing::error!(%error, "a batch cannot be applied; the stream stops here");
                        self.tell(Event::Failed(error));
                        break;
                    }
                },
                Work::Idle => self.engine.maintain(true),
                Work::Compare(stream, comparison) => self.compare(stream, comparison),
                Work::Barrier(reached) => {
                    reached.send(self.applier.position()).ok();
                }
            }
        }
        self.comparer.stop();
    }

    fn apply(&mut self, mut received: Received) -> Result<Applied, EngineError> {
        let begun = Instant::now();
        let applied = self.applier.apply(&mut received.spool)?;
        if applied.to != received.to {
            return Err(EngineError::Diverging(format!(
                "a batch announced as ending at {} ends at {}",
                received.to, applied.to
            )));
        }
        self.engine.note_applied(Head {
            seq: applied.to,
            committed_ms: applied.committed_ms,
        })?;
        Ok(Applied {
            to: applied.to,
            committed_ms: received.committed_ms,
            rows: applied.rows,
            bytes: received.spool.len(),
            took: begun.elapsed(),
        })
    }

    fn compare(&self, stream: u64, comparison: Comparison) {
        let position = self.applier.position();
        if comparison.seq() != position {
            let why = format!("this node is at {position}, not at {}", comparison.seq());
            let compared = Compared::failed(comparison, why);
            return self.tell(Event::Compared(stream, Box::new(compared)));
        }
        let results = self.results.clone();
        self.comparer.begin(comparison, move |compared| {
            results
                .blocking_send(Event::Compared(stream, Box::new(compared)))
                .ok();
        });
    }

    fn tell(&self, event: Event) {
        self.results.blocking_send(event).ok();
    }
}
