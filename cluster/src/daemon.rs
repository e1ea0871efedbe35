//! `tidegate serve`: puts the parts together, and takes them apart in order.
//!
//! Start: listeners are bound (a port in use is told before anything is touched), the health
//! listener answers, the engine opens and recovers, the node takes its role, clients are let
//! in. Stop, within one budget: unready, no new connections, requests finish, streams are
//! rolled back, the engine empties its log and closes, the health listener goes last. A
//! second signal exits at once; the database is safe then too, it only recovers at the next
//! start.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidegate_engine::{Engine, Opening, Options, Store, meta, openings, statement_gate, store};
use tidegate_replica::follower::{Follower, FollowerConfig, FollowerHandle};
use tidegate_replica::followers::Followers;
use tidegate_replica::ids::{BootId, NodeId};
use tidegate_replica::mount::Mount;
use tidegate_replica::service::{self, NodeFacts, Peer};
use tidegate_replica::settings::Settings;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::autosize::{Limits, Sizes};
use crate::config::{Config, RoleSetting, Synchronous};
use crate::duty::{self, LagBounds};
use crate::forward::{ForwardLimits, Forwarder};
use crate::front::body::BodyBudget;
use crate::front::hrana::streams::Streams;
use crate::front::{self, Door, listener};
use crate::health::{self, Health};
use crate::metrics::Metrics;
use crate::monitor;
use crate::mounted::EngineSlot;
use crate::readiness::Bounds;
use crate::role;
use crate::status::{NodeStatus, Reason, Role, State, StatusSender};
use crate::tasks::Tasks;

/// Why a node could not start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(std::net::SocketAddr, std::io::Error),
    /// The data directory cannot be opened.
    #[error("{0}")]
    Engine(#[from] tidegate_engine::Error),
    /// Durability can no longer be promised.
    #[error("the storage failed, so this node stops: {0}")]
    Fatal(String),
    /// A task ended that should live as long as the node.
    #[error("the task `{0}` failed, so this node stops: {1}")]
    Task(&'static str, String),
    /// The process cannot listen for signals.
    #[error("signals: {0}")]
    Signals(std::io::Error),
    /// What was asked for is not in this version.
    #[error("{0}")]
    Unsupported(String),
}

/// Runs a node until a signal, a fault, or if asked the end of standard input ends it.
pub async fn run(config: Config, until_stdin_closes: bool) -> Result<(), Error> {
    let mut signals = Signals::new(until_stdin_closes).map_err(Error::Signals)?;
    let sizes = Sizes::derive(&config, &Limits::read());
    for size in sizes.iter() {
        tracing::info!(key = size.key, value = size.value, origin = %size.origin, "sized");
    }
    let client = bind(config.listen.client)?;
    let peer = bind(config.listen.peer)?;
    let health = bind(config.listen.health)?;
    let node = Node::new(config, sizes)?;
    node.serve_health(health);
    tokio::select! {
        started = node.take_role() => started?,
        () = signals.any() => return Ok(()),
    }
    node.serve_peers(peer);
    node.serve_clients(client);
    node.announce();
    let outcome = tokio::select! {
        () = signals.any() => Ok(()),
        why = fatal(node.slot.clone()) => Err(Error::Fatal(why)),
        fault = node.tasks.fault() => Err(Error::Task(fault.task, fault.message)),
        fault = node.probes.fault() => Err(Error::Task(fault.task, fault.message)),
    };
    match &outcome {
        Ok(()) => tracing::info!("stopping"),
        Err(error @ Error::Fatal(_)) => {
            // No ordered shutdown: closing would write, and no write can be trusted any more.
            tracing::error!(%error, "exiting at once");
            std::process::exit(crate::cli::Exit::Fatal as i32);
        }
        Err(error) => tracing::error!(%error, "stopping"),
    }
    tokio::select! {
        () = node.stop() => outcome,
        () = signals.any() => {
            tracing::warn!("a second signal: exiting at once");
            std::process::exit(EXIT_SECOND_SIGNAL);
        }
    }
}

/// Exit code after a second signal.
pub const EXIT_SECOND_SIGNAL: i32 = 130;

/// The parts of a running node.
struct Node {
    config: Config,
    sizes: Sizes,
    status: StatusSender,
    id: NodeId,
    /// Tells this run of the process from others of the same name.
    boot: BootId,
    mount: Arc<Mount>,
    slot: EngineSlot,
    followers: Arc<Followers>,
    /// On a replica.
    follower: OnceLock<FollowerHandle>,
    settings: Settings,
    bounds: LagBounds,
    door: OnceLock<Arc<Door>>,
    health: OnceLock<Arc<Health>>,
    /// Everything but the health listener.
    tasks: Tasks,
    /// The health listener, which stops last.
    probes: Tasks,
}

impl Node {
    fn new(config: Config, sizes: Sizes) -> Result<Self, Error> {
        let status = NodeStatus::starting(&config.node.id, &config.cluster.name);
        let mount = Arc::new(Mount::new(engine_options(&config, &sizes)));
        let id = NodeId::new(&config.node.id)
            .map_err(|error| Error::Unsupported(format!("node.id: {error}")))?;
        let mut boot = [0; 16];
        getrandom::fill(&mut boot).map_err(|error| Error::Unsupported(error.to_string()))?;
        let settings = Settings {
            proof_renewed_after: config.cluster.proof_renewal,
            ..Settings::default()
        };
        Ok(Self {
            config,
            sizes,
            status: watch::Sender::new(status),
            id,
            boot: BootId::new(boot),
            slot: EngineSlot::new(mount.current()),
            mount,
            followers: Arc::default(),
            follower: OnceLock::new(),
            settings,
            bounds: LagBounds::default(),
            door: OnceLock::new(),
            health: OnceLock::new(),
            tasks: Tasks::new(),
            probes: Tasks::new(),
        })
    }

    fn serve_health(&self, socket: TcpListener) {
        let bounds = Bounds {
            write_probe_age_max: self.config.sql.transaction_total + Duration::from_secs(30),
            ..Bounds::default()
        };
        let health = Arc::new(Health {
            status: self.status.subscribe(),
            bounds,
            engine: self.slot.clone(),
            metrics: Metrics::new(self.config.listens_outside_loopback()),
            test_now: Notify::new(),
        });
        self.health.set(health.clone()).ok();
        let limits = listener::Limits {
            connections_max: health::CONNECTIONS_MAX,
            keep_alive: Duration::from_secs(30),
        };
        let router = health::router(health.clone());
        let serve = listener::serve(socket, router, limits, self.probes.clone());
        self.probes.spawn("health listener", serve);
        let monitor = monitor::run(
            health,
            self.status.clone(),
            self.config.node.data_dir.clone(),
            self.probes.stopping(),
        );
        self.probes.spawn("monitor", monitor);
    }

    /// Opens the database in the role that its history, or else the configuration, gives.
    /// Recovery may take long: it runs on threads of its own, and `/startupz` waits for it.
    async fn take_role(&self) -> Result<(), Error> {
        self.status.send_modify(|status| {
            status.state = State::Recovering;
            status.detail = format!("opening {}", self.config.node.data_dir.display());
        });
        let dir = self.config.node.data_dir.clone();
        let history = blocking(move || read_history(&dir)).await?;
        let decision = role::decide(self.config.cluster.role, self.id.as_str(), &history);
        if let Some(warning) = &decision.warning {
            tracing::warn!(node = %self.id, "{warning}");
        }
        match decision.role {
            RoleSetting::Primary => self.lead().await,
            RoleSetting::Replica => self.follow(),
        }
    }

    async fn lead(&self) -> Result<(), Error> {
        let (mount, id) = (self.mount.clone(), self.config.node.id.clone());
        let engine = blocking(move || {
            let engine = Engine::open(mount.options().clone())?;
            engine.start_primary(&id, "start")?;
            mount.show(engine.clone());
            Ok(engine)
        })
        .await?;
        let identity = Identity::read(&engine)?;
        self.status.send_modify(|status| {
            status.cluster_id = identity.cluster_id;
            status.epoch = identity.epoch;
            status.role = Role::Primary;
            status.primary = Some(status.node.clone());
            status.state = State::Ready;
            status.reason = Reason::None;
            status.detail = "takes writes".to_owned();
        });
        let watch = duty::watch_followers(
            self.followers.clone(),
            self.slot.clone(),
            self.status.clone(),
            self.bounds,
            self.tasks.stopping(),
        );
        self.tasks.spawn("followers", watch);
        Ok(())
    }

    fn follow(&self) -> Result<(), Error> {
        let source = self.source().ok_or_else(|| {
            Error::Unsupported(
                "a replica needs a primary to follow: set cluster.primary (--primary \
                 http://host:9070), or cluster.peers"
                    .into(),
            )
        })?;
        let config = FollowerConfig {
            node: self.id.clone(),
            boot: self.boot,
            source: source.clone(),
            settings: self.settings,
        };
        let (follower, handle) = Follower::new(config, self.mount.clone());
        let stopping = self.tasks.stopping();
        let following = async move {
            follower.run(stopping).await;
            Ok::<(), std::convert::Infallible>(())
        };
        self.tasks.spawn("follower", following);
        let watch = duty::watch_follower(
            handle.state.clone(),
            source,
            self.slot.clone(),
            self.status.clone(),
            self.bounds,
            self.tasks.stopping(),
        );
        self.tasks.spawn("following", watch);
        self.follower.set(handle).ok();
        Ok(())
    }

    /// Whom a replica follows: the configured primary, or else the only other node.
    fn source(&self) -> Option<String> {
        let cluster = &self.config.cluster;
        let peers = cluster.peers.first().map(|(_, url)| url.clone());
        cluster
            .primary
            .clone()
            .filter(|url| !url.is_empty())
            .or(peers)
    }

    /// How clients' writes reach the primary from a replica.
    fn forwarder(&self) -> Option<Arc<Forwarder>> {
        self.follower.get()?;
        Some(Arc::new(Forwarder::new(
            self.source()?,
            self.config.node.id.clone(),
            self.status.subscribe(),
            self.slot.clone(),
            self.settings,
            ForwardLimits::default(),
        )))
    }

    fn serve_peers(&self, socket: TcpListener) {
        let facts = watch::Sender::new(NodeFacts::default());
        let peer = Peer {
            node: self.id.clone(),
            boot: self.boot,
            engine: self.mount.current(),
            facts: facts.subscribe(),
            followers: self.followers.clone(),
            settings: self.settings,
        };
        let stopping = self.tasks.stopping();
        let serve = service::serve(socket, peer, stopping.clone());
        self.tasks.spawn("peer listener", serve);
        let tell = duty::tell_peers(self.status.subscribe(), facts, stopping);
        self.tasks.spawn("peer facts", tell);
    }

    fn serve_clients(&self, socket: TcpListener) {
        let http = self.config.http.clone();
        let door = Arc::new(Door {
            engine: self.slot.clone(),
            forwarder: self.forwarder(),
            streams: Streams::new(&self.config.node.id, http.streams_max, http.stream_idle),
            status: self.status.subscribe(),
            bodies: BodyBudget::new(
                self.sizes.request_memory.value,
                http.request_bytes_max,
                http.body_timeout,
            ),
            reply_bytes_max: to_usize(self.sizes.result_bytes_max.value),
            stopping: self.tasks.stopping(),
            config: http,
        });
        let limits = listener::Limits {
            connections_max: door.config.connections_max,
            keep_alive: door.config.keep_alive,
        };
        let health = self.health.get().expect("the health listener comes first");
        let admin = Arc::new(Admin {
            followers: self.followers.clone(),
            follower: self.follower.get().cloned(),
            status: self.status.subscribe(),
        });
        let routes = front::router(door.clone())
            .merge(health::shared_routes(health.clone()))
            .merge(admin::router(admin));
        let serve = listener::serve(socket, routes, limits, self.tasks.clone());
        self.tasks.spawn("client listener", serve);
        self.tasks.spawn("stream expiry", expire(door.clone()));
        // Outlives the others: closing the engine waits until nobody holds it.
        let release = release(door.clone(), self.slot.clone(), self.probes.stopping());
        self.probes.spawn("stream release", release);
        self.door.set(door).ok();
        self.status.send_modify(|status| status.started = true);
        health.test_now.notify_one();
    }

    fn announce(&self) {
        let listen = &self.config.listen;
        tracing::info!(
            node = self.config.node.id,
            client = %listen.client,
            peer = %listen.peer,
            health = %listen.health,
            data_dir = %self.config.node.data_dir.display(),
            "serving"
        );
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            eprintln!("{}", greeting(&self.config));
        }
    }

    async fn stop(&self) {
        let deadline = Instant::now() + self.config.node.shutdown_budget;
        let left = || deadline.saturating_duration_since(Instant::now());
        self.status.send_modify(|status| {
            status.draining = true;
            status.state = State::Draining;
            status.detail = "shutting down".to_owned();
        });
        self.tasks.stop();
        // Half of what is left for requests; the engine needs the rest.
        if !self.tasks.wait(left() / 2).await {
            tracing::warn!(tasks = self.tasks.running(), "requests were cut off");
        }
        if let Some(door) = self.door.get() {
            door.streams.clear();
        }
        if let Some(engine) = self.slot.get() {
            let mount = self.mount.clone();
            let closing = tokio::task::spawn_blocking(move || mount.close(engine));
            match tokio::time::timeout(left(), closing).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(error))) => tracing::warn!(%error, "closing"),
                _ => tracing::warn!(
                    "the engine did not close in time; it recovers at the next start"
                ),
            }
        }
        self.probes.stop();
        self.probes.wait(left().min(Duration::from_secs(1))).await;
        tracing::info!("stopped");
    }
}

/// Which cluster this copy belongs to, and in which epoch its history is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The cluster's id; empty on a node that has none yet.
    pub cluster_id: String,
    /// Epoch of the newest opening; zero before the first.
    pub epoch: u64,
}

impl Identity {
    /// A few rows: short enough to be read here.
    pub fn read(engine: &Engine) -> Result<Self, tidegate_engine::Error> {
        let mut connection = engine.store().reader()?;
        let cluster_id = meta::cluster_id(&mut connection)?;
        let openings = openings::openings(&mut connection)?;
        connection.close()?;
        Ok(Self {
            cluster_id: cluster_id.map_or_else(String::new, |id| id.to_string()),
            epoch: openings.last().map_or(0, |opening| opening.epoch),
        })
    }
}

/// SIGTERM, SIGINT, and the end of standard input where that counts.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    stdin: Option<tokio::task::JoinHandle<()>>,
}

impl Signals {
    fn new(until_stdin_closes: bool) -> std::io::Result<Self> {
        // Blocks a thread to the process's end, which does not wait for it.
        let stdin = || drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            stdin: until_stdin_closes.then(|| tokio::task::spawn_blocking(stdin)),
        })
    }

    /// Waits for the next one; standard input closes only once.
    async fn any(&mut self) {
        let stdin = async {
            match &mut self.stdin {
                Some(stdin) => stdin.await.ok(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = stdin => self.stdin = None,
        }
    }
}

fn bind(address: std::net::SocketAddr) -> Result<TcpListener, Error> {
    listener::bind(address).map_err(|error| Error::Listen(address, error))
}

/// Waits until an engine says that the process must exit. A replica may have several, one
/// after the other.
async fn fatal(mut slot: EngineSlot) -> String {
    loop {
        let mut reason = slot.fatal().await;
        tokio::select! {
            told = reason.wait_for(Option::is_some) => {
                if let Ok(told) = told {
                    return told.clone().expect("waited for one");
                }
            }
            () = slot.closed() => {}
        }
    }
}

/// Runs what blocks on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, tidegate_engine::Error> + Send + 'static,
) -> Result<T, tidegate_engine::Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("the engine contains its own panics")
}

/// The openings in a data directory, before anything is decided.
fn read_history(dir: &Path) -> Result<Vec<Opening>, tidegate_engine::Error> {
    let store = Store::open(dir)?;
    let mut connection = store.reader()?;
    let history = openings::openings(&mut connection)?;
    connection.close()?;
    Ok(history)
}

/// Ends all streams whenever the engine is closed, because they hold it.
async fn release(
    door: Arc<Door>,
    mut slot: EngineSlot,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    loop {
        tokio::select! {
            () = slot.closed() => door.streams.clear(),
            () = stopping.cancelled() => return Ok(()),
        }
        tokio::select! {
            _ = slot.fatal() => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}

async fn expire(door: Arc<Door>) -> Result<(), std::convert::Infallible> {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = tick.tick() => {
                door.streams.expire(Instant::now());
            }
            () = door.stopping.cancelled() => return Ok(()),
        }
    }
}

/// The engine reads no configuration: every bound is handed over here.
fn engine_options(config: &Config, sizes: &Sizes) -> Options {
    let sql = &config.sql;
    Options {
        synchronous: match sql.synchronous {
            Synchronous::Full => store::Synchronous::Full,
            Synchronous::Normal => store::Synchronous::Normal,
        },
        cache_kib: u32::try_from(sizes.cache.value >> 10)
            .unwrap_or(u32::MAX)
            .max(1),
        foreign_keys: sql.foreign_keys,
        readers: to_usize(sizes.readers.value),
        read_queue_max: sql.read_queue_max,
        transactions_max: to_usize(sizes.transactions_max.value),
        write_queue_max: sql.write_queue_max,
        write_queue_bytes_max: to_usize(sizes.request_memory.value),
        group_statements_max: sql.group_max,
        statement_time_max: sql.statement_timeout,
        write_time_max: sql.write_timeout,
        permit_wait_max: sql.permit_wait,
        transaction_idle_max: sql.transaction_idle,
        transaction_permit_idle_max: sql.transaction_permit_idle,
        transaction_time_max: sql.transaction_total,
        result_bytes_max: to_usize(sizes.result_bytes_max.value),
        wal_checkpoint_bytes: sql.checkpoint_bytes,
        wal_bytes_max: sql.wal_bytes_max,
        limits: statement_gate::Limits {
            sql_bytes_max: sql.sql_bytes_max,
            nesting_max: sql.nesting_max,
            params_max: sql.params_max,
            compound_terms_max: sql.compound_terms_max,
            selects_max: sql.selects_max,
            with_tables_max: sql.with_tables_max,
            upsert_clauses_max: sql.upsert_clauses_max,
            script_bytes_max: sql.script_bytes_max,
            script_statements_max: sql.script_statements_max,
        },
        ..Options::new(Path::new(&config.node.data_dir))
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn greeting(config: &Config) -> String {
    let client = config.listen.client;
    let health = config.listen.health;
    format!(
        "\nTidegate serves {dir} on http://{client} (health: http://{health}). Try:\n\n  \
         curl http://{client}/v3/pipeline -d '{{\"requests\":[{{\"type\":\"execute\",\"stmt\":\
         {{\"sql\":\"SELECT 40 + 2\"}}}}]}}'\n  curl 'http://{health}/readyz?verbose'\n  \
         tidegate sql http://{client}\n",
        dir = config.node.data_dir.display(),
    )
}
