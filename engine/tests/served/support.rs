//! What the tests share.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Engine, Options, Params, Result, ResultSet, Session};

/// An engine that takes writes, in a directory of its own.
pub struct Node {
    pub engine: Arc<Engine>,
    _dir: tempfile::TempDir,
}

impl Node {
    pub fn start() -> Self {
        Self::start_with(|_| {})
    }

    pub fn start_with(change: impl FnOnce(&mut Options)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path().join("d"));
        change(&mut options);
        let engine = Engine::open(options).unwrap();
        engine.start_primary("n1", "test").unwrap();
        Self { engine, _dir: dir }
    }

    pub fn session(&self) -> Session {
        self.engine.session()
    }
}

pub async fn run(session: &mut Session, sql: &str) -> Result<ResultSet> {
    session.execute(sql, Params::default(), true).await
}

pub async fn ok(session: &mut Session, sql: &str) -> ResultSet {
    run(session, sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

pub async fn integer(session: &mut Session, sql: &str) -> i64 {
    ok(session, sql)
        .await
        .single()
        .unwrap()
        .as_integer()
        .unwrap()
}

/// Waits for a condition; the only clock a test may trust is a generous deadline.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

impl Node {
    /// Holds the write permit, queues the statements behind it in their order, each from a
    /// session of its own, lets go, and gives back what each came to. All of them wait when
    /// the permit comes back, so they form one group.
    pub async fn run_together(&self, statements: &[&str]) -> Vec<Result<ResultSet>> {
        let mut holder = self.session();
        ok(&mut holder, "BEGIN IMMEDIATE").await;
        let mut waiting = Vec::new();
        for (n, sql) in statements.iter().enumerate() {
            let mut session = self.session();
            let sql = (*sql).to_owned();
            let task = async move { session.execute(&sql, Params::default(), true).await };
            waiting.push(tokio::spawn(task));
            let queued = || self.engine.stats().write_queue_depth == n as u64 + 1;
            eventually("the write waits", queued).await;
        }
        ok(&mut holder, "ROLLBACK").await;
        let mut outcomes = Vec::new();
        for task in waiting {
            outcomes.push(task.await.unwrap());
        }
        outcomes
    }
}

/// Fails when the future takes longer than a person would wait.
pub async fn promptly<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(output) => output,
        Err(_) => panic!("took too long: {what}"),
    }
}

/// The code of an outcome that must be an error.
pub fn code(outcome: &Result<ResultSet>) -> &'static str {
    match outcome {
        Ok(result) => panic!("expected an error, got {result:?}"),
        Err(error) => error.code(),
    }
}
