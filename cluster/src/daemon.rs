//! `tidegate serve`: puts the parts together, and takes them apart in order.
//!
//! Start: listeners are bound (a port in use is told before anything is touched), the health
//! listener answers, the engine opens and recovers, the node takes its role, clients are let
//! in. Stop, within one budget: unready, no new connections, requests finish, streams are
//! rolled back, the engine empties its log and closes, the health listener goes last. A
//! second signal exits at once; the database is safe then too, it only recovers at the next
//! start.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tidegate_replica::followers::Followers;
use tidegate_replica::ids::{BootId, NodeId};
use tidegate_replica::mount::Mount;
use tidegate_replica::retention;
use tidegate_replica::service::{self, Met, NodeFacts, Peer};
use tidegate_replica::settings::Settings;
use tidegate_replica::trimmer::Trimmer;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::autosize::{Limits, Sizes};
use crate::config::Config;
use crate::duty::{self, LagBounds};
use crate::forward::{ForwardLimits, Forwarder};
use crate::front::body::BodyBudget;
use crate::front::hrana::streams::Streams;
use crate::front::{self, Door, listener};
use crate::health::{self, Health};
use crate::metrics::Metrics;
use crate::monitor;
use crate::mounted::EngineSlot;
use crate::options::{engine_options, to_usize};
use crate::peers::{self, Sightings};
use crate::readiness::Bounds;
use crate::roles::{self, RoleHandle, RoleKeeper};
use crate::signals::Signals;
use crate::status::{NodeStatus, State, StatusSender};
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
    let met = node.serve_peers(peer);
    node.watch_peers(met);
    let (mut keeper, role) = node.role_keeper();
    tokio::select! {
        started = keeper.start() => started?,
        () = signals.any() => return Ok(()),
    }
    node.tasks.spawn("role", keeper.run());
    node.serve_clients(client, &role);
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
    sightings: watch::Sender<Sightings>,
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
            retention: retention::Limits {
                keep_rows: config.cluster.log_keep_rows,
                keep_age: config.cluster.log_keep_age,
            },
            ..Settings::default()
        };
        let cluster = &config.cluster;
        let sightings = Sightings::of(&cluster.peers, cluster.primary.as_deref());
        let sightings = watch::Sender::new(sightings);
        Ok(Self {
            config,
            sizes,
            status: watch::Sender::new(status),
            id,
            boot: BootId::new(boot),
            slot: EngineSlot::new(mount.current()),
            mount,
            followers: Arc::default(),
            sightings,
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
            log_keep_rows: self.config.cluster.log_keep_rows,
            log_keep_age: self.config.cluster.log_keep_age,
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

    /// What enters this node's role, and what others need of it.
    fn role_keeper(&self) -> (RoleKeeper, RoleHandle) {
        RoleKeeper::new(roles::Parts {
            id: self.id.clone(),
            boot: self.boot,
            cluster: self.config.cluster.clone(),
            mount: self.mount.clone(),
            slot: self.slot.clone(),
            followers: self.followers.clone(),
            status: self.status.clone(),
            settings: self.settings,
            bounds: self.bounds,
            sightings: self.sightings.subscribe(),
            tasks: self.tasks.clone(),
        })
    }

    /// Asks every other node what it is, from now on.
    fn watch_peers(&self, met: watch::Receiver<Option<Met>>) {
        let urls: Vec<String> = self.sightings.borrow().peers.keys().cloned().collect();
        for url in urls {
            let watch = peers::watch_peer(
                url,
                self.id.to_string(),
                self.settings,
                self.sightings.clone(),
                self.tasks.stopping(),
            );
            self.tasks.spawn("peer watch", watch);
        }
        let watch = peers::watch_met(met, self.sightings.clone(), self.tasks.stopping());
        self.tasks.spawn("meetings", watch);
    }

    /// How clients' writes reach the primary from a replica.
    fn forwarder(&self, role: &RoleHandle) -> Arc<Forwarder> {
        Arc::new(Forwarder::new(
            role.primary.clone(),
            self.config.node.id.clone(),
            self.status.subscribe(),
            self.slot.clone(),
            self.settings,
            ForwardLimits::default(),
        ))
    }

    /// Before the node has a role: nodes that start together ask each other first.
    fn serve_peers(&self, socket: TcpListener) -> watch::Receiver<Option<Met>> {
        let facts = watch::Sender::new(NodeFacts::default());
        let met = watch::Sender::new(None);
        let meetings = met.subscribe();
        let peer = Peer {
            node: self.id.clone(),
            boot: self.boot,
            engine: self.mount.current(),
            facts: facts.subscribe(),
            followers: self.followers.clone(),
            met,
            settings: self.settings,
        };
        let stopping = self.tasks.stopping();
        let serve = service::serve(socket, peer, stopping.clone());
        self.tasks.spawn("peer listener", serve);
        self.keep_log_short();
        let tell = duty::tell_peers(self.status.subscribe(), facts, stopping);
        self.tasks.spawn("peer facts", tell);
        meetings
    }

    /// In whatever role: a replica keeps as much of the log as its primary.
    fn keep_log_short(&self) {
        let (engine, followers) = (self.mount.current(), self.followers.clone());
        let trimmer = Trimmer::new(engine, followers, self.settings.retention);
        let stopping = self.tasks.stopping();
        let trimming = async move {
            trimmer.run(stopping).await;
            Ok::<(), std::convert::Infallible>(())
        };
        self.tasks.spawn("log trimmer", trimming);
    }

    fn serve_clients(&self, socket: TcpListener, role: &RoleHandle) {
        let http = self.config.http.clone();
        let door = Arc::new(Door {
            engine: self.slot.clone(),
            forwarder: Some(self.forwarder(role)),
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
            follower: role.follower.clone(),
            status: self.status.subscribe(),
            engine: self.slot.clone(),
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
