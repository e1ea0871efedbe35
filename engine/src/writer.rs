//! The writer thread, which *is* the write permit.
//!
//! One thread takes jobs from one bounded queue, in the order they came. Whoever writes
//! either is run by this thread or holds what this thread has lent him, so two writers never
//! meet in the engine's lock, nobody sees BUSY, and nobody is starved:
//!
//! - **writes** outside transactions are run in groups, see `group`;
//! - an interactive transaction asks for the permit with a **loan**: the writer hands it
//!   over and waits until it comes back;
//! - **tasks** are the node's own: trimming, the floor, slots, openings;
//! - between two jobs the writer checkpoints the write-ahead log when it is due.
//!
//! A job that waited too long is answered as overloaded, unexecuted, also while the permit
//! is lent. After a failed fsync the writer answers everything with the fatal error.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::adapter::Connection;
use crate::checkpoint::Checkpointer;
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::group::Groups;
use crate::queue::Popped;
use crate::shared::{STACK_BYTES, Shared};
use crate::statement::{Reply, Statement};
use crate::statement_gate::Kind;

/// While the permit is lent, the queue is looked through this often for jobs that have
/// waited too long.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);

/// Work for the writer.
pub(crate) enum WriterJob {
    /// A statement outside a transaction.
    Write(WriteJob),
    /// A loan of the permit.
    Lend(LendJob),
    /// Work of the node itself on a connection without capture.
    Task(Task),
}

/// A statement outside a transaction.
pub(crate) struct WriteJob {
    pub(crate) statement: Statement,
    pub(crate) foreign_keys: bool,
    /// The facts under which the statement was inspected.
    pub(crate) facts: Arc<Facts>,
    /// The client's own text, to be inspected again when the schema has moved.
    pub(crate) original_sql: String,
    pub(crate) queued: Instant,
    pub(crate) respond: oneshot::Sender<Result<Reply>>,
}

/// A request for the permit.
pub(crate) struct LendJob {
    pub(crate) queued: Instant,
    pub(crate) respond: mpsc::SyncSender<Result<Permit>>,
}

/// Work of the node itself. The connection captures nothing.
pub(crate) type Task = Box<dyn FnOnce(Result<&mut Connection>) + Send>;

/// The write permit on loan; dropping it gives it back.
pub(crate) struct Permit {
    _back: mpsc::SyncSender<()>,
}

/// Starts the writer thread.
pub(crate) fn spawn(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let mut writer = Writer {
        groups: Groups::open(shared)?,
        internal: None,
        checkpointer: Checkpointer::new(),
        shared: shared.clone(),
    };
    let thread = thread::Builder::new()
        .name("writer".into())
        .stack_size(STACK_BYTES)
        .spawn(move || writer.work())?;
    Ok(thread)
}

struct Writer {
    shared: Arc<Shared>,
    groups: Groups,
    internal: Option<Connection>,
    checkpointer: Checkpointer,
}

impl Writer {
    fn work(&mut self) {
        loop {
            match self.shared.writes.pop(self.shared.options.checkpoint_idle) {
                Popped::Entry(job) => self.take(job),
                Popped::TimedOut => self.checkpointer.when_idle(&self.shared),
                Popped::Closed => break,
            }
            self.checkpointer.when_due(&self.shared);
        }
        self.groups.close();
        if let Some(connection) = self.internal.take() {
            self.shared.retire(connection);
        }
        self.checkpointer.close(&self.shared);
    }

    fn take(&mut self, job: WriterJob) {
        if let Err(error) = self.may_run(&job) {
            return job.refuse(error);
        }
        match job {
            WriterJob::Write(job) => {
                let jobs = self.company_of(job);
                self.groups.run(jobs);
            }
            WriterJob::Lend(job) => self.lend(job),
            WriterJob::Task(task) => self.run_task(task),
        }
    }

    fn may_run(&self, job: &WriterJob) -> Result<()> {
        if let Some(why) = self.shared.fatal.borrow().as_ref() {
            return Err(Error::Fatal(why.clone()));
        }
        self.shared.check_fence()?;
        match job.queued() {
            Some(queued) if queued.elapsed() > self.shared.options.permit_wait_max => {
                Err(waited_too_long(&self.shared))
            }
            _ => Ok(()),
        }
    }

    /// The job and those behind it that may share a commit with it.
    fn company_of(&self, first: WriteJob) -> Vec<WriteJob> {
        let options = &self.shared.options;
        let (mut count, mut bytes) = (1, first.statement.size_bytes());
        let mut jobs = vec![first];
        if !may_join(&jobs[0]) {
            return jobs;
        }
        let foreign_keys = jobs[0].foreign_keys;
        let company = self.shared.writes.take_while(|job, job_bytes| {
            let WriterJob::Write(job) = job else {
                return false;
            };
            count += 1;
            bytes += job_bytes;
            count <= options.group_statements_max
                && bytes <= options.group_bytes_max
                && job.foreign_keys == foreign_keys
                && may_join(job)
        });
        jobs.extend(company.into_iter().filter_map(|job| match job {
            WriterJob::Write(job) => Some(job),
            _ => None,
        }));
        jobs
    }

    /// Hands the permit over and waits until it is dropped.
    fn lend(&self, job: LendJob) {
        self.note_wait(job.queued);
        let (back, returned) = mpsc::sync_channel(0);
        if job.respond.send(Ok(Permit { _back: back })).is_err() {
            return;
        }
        // Nothing is ever sent: the channel closes when the permit is dropped.
        while let Err(mpsc::RecvTimeoutError::Timeout) = returned.recv_timeout(EXPIRE_EVERY) {
            self.expire();
        }
    }

    /// Answers the jobs at the front of the queue that have waited too long.
    fn expire(&self) {
        let limit = self.shared.options.permit_wait_max;
        let expired = self.shared.writes.take_while(|job, _| {
            let queued = job.queued();
            queued.is_some_and(|queued| queued.elapsed() > limit)
        });
        for job in expired {
            job.refuse(waited_too_long(&self.shared));
        }
    }

    fn run_task(&mut self, task: Task) {
        let mut connection = match self.internal.take() {
            Some(connection) => connection,
            None => match self.shared.store.internal() {
                Ok(connection) => connection,
                Err(error) => return task(Err(error)),
            },
        };
        task(Ok(&mut connection));
        let clean = connection.is_autocommit() || connection.execute("ROLLBACK", &[]).is_ok();
        if connection.is_broken() || !clean {
            self.shared.retire(connection);
        } else {
            self.internal = Some(connection);
        }
    }

    fn note_wait(&self, queued: Instant) {
        self.shared
            .counters
            .permit_wait_seconds
            .observe_time(queued.elapsed());
    }
}

impl WriterJob {
    fn queued(&self) -> Option<Instant> {
        match self {
            Self::Write(job) => Some(job.queued),
            Self::Lend(job) => Some(job.queued),
            Self::Task(_) => None,
        }
    }

    /// Answers with an error, unexecuted.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Write(job) => drop(job.respond.send(Err(error))),
            Self::Lend(job) => drop(job.respond.send(Err(error))),
            Self::Task(task) => task(Err(error)),
        }
    }
}

/// Statements that must be alone: schema changes and header pragmas (the next statement is
/// inspected under the new schema), those whose triggers ask for the session's values, and
/// all while a deferred foreign key exists, because one client's orphan would be excused by
/// another's parent.
fn may_join(job: &WriteJob) -> bool {
    let inspected = &job.statement.inspected;
    match &inspected.kind {
        Kind::Write(info) => {
            let checked_late = job.foreign_keys && info.deferred_keys;
            !inspected.touches_session_triggers && !checked_late
        }
        _ => false,
    }
}

fn waited_too_long(shared: &Shared) -> Error {
    shared.overloaded(
        "permit_wait",
        "the write waited too long for its turn and was not executed; try again in a moment",
    )
}
