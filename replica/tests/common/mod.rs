//! Two nodes in one process, over a real loopback connection, with real engines.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{Engine, Options, Params, Seq, testing};
use tidegate_replica::follower::{
    Follower, FollowerConfig, FollowerHandle, SourceAddress, fixed_source,
};
use tidegate_replica::followers::{FollowerStatus, Followers};
use tidegate_replica::ids::{BootId, NodeId};
use tidegate_replica::mount::Mount;
use tidegate_replica::proof::PassReport;
use tidegate_replica::service::{self, NodeFacts, Peer};
use tidegate_replica::settings::Settings;
use tidegate_replica::state::FollowerState;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer on a machine that is alive.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Short intervals, so that tests about silence are quick.
pub fn settings() -> Settings {
    Settings {
        heartbeat_interval: Duration::from_millis(100),
        silent_intervals_max: 50,
        pass_retry: Duration::from_millis(200),
        ..Settings::default()
    }
}

pub fn node_id(name: &str) -> NodeId {
    NodeId::new(name).expect("a node id")
}

pub fn boot_id() -> BootId {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("randomness");
    BootId::new(bytes)
}

fn options(dir: &Path) -> Options {
    Options {
        readers: 1,
        ..Options::new(dir)
    }
}

/// A primary that serves its peers.
pub struct Primary {
    pub engine: Arc<Engine>,
    pub followers: Arc<Followers>,
    pub address: SocketAddr,
    pub current: watch::Sender<Option<Arc<Engine>>>,
    _facts: watch::Sender<NodeFacts>,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Primary {
    pub async fn start(dir: &Path) -> Self {
        Self::start_at(dir, "127.0.0.1:0").await
    }

    pub async fn start_at(dir: &Path, address: &str) -> Self {
        let dir = dir.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let engine = Engine::open(options(&dir)).expect("an engine");
            engine.start_primary("n1", "test").expect("a primary");
            engine
        });
        let engine = opened.await.expect("opened");
        Self::serve(engine, address).await
    }

    /// A primary over a directory that somebody else has filled before.
    pub async fn adopt(dir: &Path, statements: &[&str]) -> Self {
        let store = tidegate_engine::Store::open(dir).expect("a directory");
        let mut connection = store.internal().expect("a connection");
        for sql in statements {
            connection.execute(sql, &[]).expect("a statement");
        }
        connection.close().expect("closed");
        store.close().expect("closed");
        Self::start(dir).await
    }

    async fn serve(engine: Arc<Engine>, address: &str) -> Self {
        let listener = bind(address).await;
        let address = listener.local_addr().expect("an address");
        let current = watch::Sender::new(Some(engine.clone()));
        let facts = watch::Sender::new(NodeFacts {
            role: "primary".into(),
            is_proven: true,
            ..NodeFacts::default()
        });
        let followers = Arc::new(Followers::new());
        let peer = Peer {
            node: node_id("n1"),
            boot: boot_id(),
            engine: current.subscribe(),
            facts: facts.subscribe(),
            followers: followers.clone(),
            met: watch::Sender::new(None),
            settings: settings(),
        };
        let stop = CancellationToken::new();
        let serving = service::serve(listener, peer, stop.clone());
        let server = tokio::spawn(async move { serving.await.expect("the server") });
        Self {
            engine,
            followers,
            address,
            current,
            _facts: facts,
            stop,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs statements, each on its own.
    pub async fn run(&self, statements: &[&str]) {
        let mut session = self.engine.session();
        for sql in statements {
            let ran = session.execute(sql, Params::default(), false).await;
            ran.unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        session.close().await;
    }

    pub fn head(&self) -> Seq {
        self.engine.head().borrow().seq
    }

    /// Waits until what is known of the follower is as wanted.
    pub async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&FollowerStatus) -> bool,
    ) -> FollowerStatus {
        let mut status = self.followers.status();
        let node = node_id("n2");
        let met = status.wait_for(|all| all.get(&node).is_some_and(&wanted));
        match tokio::time::timeout(PATIENCE, met).await {
            Ok(found) => found.expect("the register lives")[&node].clone(),
            Err(_) => panic!(
                "never: {what}: {:?}",
                self.followers.status().borrow().get(&node)
            ),
        }
    }

    /// Stops serving and closes the database.
    pub async fn stop(self) {
        self.stop.cancel();
        self.current.send_replace(None);
        self.server.await.expect("the server ended");
        let engine = self.engine;
        let closing = tokio::task::spawn_blocking(move || {
            engine.shutdown();
            let mut engine = engine;
            let deadline = std::time::Instant::now() + PATIENCE;
            while let Err(held) = Arc::try_unwrap(engine) {
                assert!(std::time::Instant::now() < deadline, "the engine is held");
                engine = held;
                std::thread::yield_now();
            }
        });
        closing.await.expect("closed");
    }
}

/// A replica that serves its peers.
pub struct Served {
    pub followers: Arc<Followers>,
    address: SocketAddr,
    _facts: watch::Sender<NodeFacts>,
    stop: CancellationToken,
    server: JoinHandle<()>,
}

impl Served {
    pub async fn of_replica(replica: &Replica, name: &str) -> Self {
        let listener = bind("127.0.0.1:0").await;
        let address = listener.local_addr().expect("an address");
        let facts = watch::Sender::new(NodeFacts::default());
        let followers = Arc::new(Followers::new());
        let peer = Peer {
            node: node_id(name),
            boot: boot_id(),
            engine: replica.mount.current(),
            facts: facts.subscribe(),
            followers: followers.clone(),
            met: watch::Sender::new(None),
            settings: settings(),
        };
        let stop = CancellationToken::new();
        let serving = service::serve(listener, peer, stop.clone());
        let server = tokio::spawn(async move { serving.await.expect("the server") });
        Self {
            followers,
            address,
            _facts: facts,
            stop,
            server,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.server.await.expect("the server ended");
    }
}

/// A replica of it.
pub struct Replica {
    pub mount: Arc<Mount>,
    pub handle: FollowerHandle,
    pub dir: PathBuf,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Replica {
    pub fn start(dir: &Path, source: &str) -> Self {
        Self::start_as(dir, source, "n2", settings())
    }

    pub fn start_as(dir: &Path, source: &str, name: &str, settings: Settings) -> Self {
        Self::start_at(dir, fixed_source(source.to_owned()), name, settings)
    }

    pub fn start_at(dir: &Path, source: SourceAddress, name: &str, settings: Settings) -> Self {
        let mount = Arc::new(Mount::new(options(dir)));
        let config = FollowerConfig {
            node: node_id(name),
            boot: boot_id(),
            source,
            settings,
        };
        let (follower, handle) = Follower::new(config, mount.clone());
        let stop = CancellationToken::new();
        let task = tokio::spawn(follower.run(stop.clone()));
        Self {
            mount,
            handle,
            dir: dir.to_owned(),
            stop,
            task,
        }
    }

    pub fn state(&self) -> FollowerState {
        self.handle.state.borrow().clone()
    }

    pub fn engine(&self) -> Arc<Engine> {
        self.mount
            .current()
            .borrow()
            .clone()
            .expect("an open database")
    }

    /// Waits until its state is as wanted.
    pub async fn until(
        &self,
        what: &str,
        wanted: impl FnMut(&FollowerState) -> bool,
    ) -> FollowerState {
        let mut state = self.handle.state.clone();
        match tokio::time::timeout(PATIENCE, state.wait_for(wanted)).await {
            Ok(found) => found.expect("the follower lives").clone(),
            Err(_) => panic!("never: {what}: {:#?}", self.state()),
        }
    }

    /// Changes rows behind the back of everybody: nothing is logged.
    pub fn plant(&self, statements: &[&str]) {
        let engine = self.engine();
        let mut connection = engine.store().internal().expect("a connection");
        for sql in statements {
            connection.execute(sql, &[]).expect("planted");
        }
    }

    /// Asks for a pass and waits for its verdict.
    pub async fn pass(&self) -> PassReport {
        let before = self.state().proof.passes;
        assert!(self.handle.request_pass("test"));
        let state = self
            .until("a pass", |state| state.proof.passes > before)
            .await;
        state.proof.last.expect("a report")
    }

    /// Waits until it has applied everything that the primary has.
    pub async fn until_level(&self, primary: &Primary) -> FollowerState {
        let head = primary.head();
        self.until("level", |state| {
            state.applied >= head && state.is_attached()
        })
        .await
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("the follower ended");
    }
}

/// Fails with what differs, if anything does.
pub fn assert_equal(primary: &Primary, replica: &Replica) {
    let other = replica.engine();
    let found = testing::differences(primary.engine.store(), other.store());
    let found = found.expect("both are readable");
    assert!(found.is_empty(), "{found:#?}");
}

/// The port of a node that just stopped may need a moment.
async fn bind(address: &str) -> TcpListener {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(error) if tokio::time::Instant::now() > deadline => panic!("{address}: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
