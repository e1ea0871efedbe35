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

use tidegate_engine::{Engine, Options, meta, openings, statement_gate, store};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

use crate::autosize::{Limits, Sizes};
use crate::config::{Config, RoleSetting, Synchronous};
use crate::front::body::BodyBudget;
use crate::front::hrana::streams::Streams;
use crate::front::{self, Door, listener};
use crate::health::{self, Health};
use crate::metrics::Metrics;
use crate::monitor;
use crate::readiness::Bounds;
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
    let health = bind(config.listen.health)?;
    let node = Node::new(config, sizes);
    node.serve_health(health);
    let engine = tokio::select! {
        opened = node.open_engine() => opened?,
        () = signals.any() => return Ok(()),
    };
    node.take_role(&engine).await?;
    node.serve_clients(client, &engine);
    node.announce();
    let outcome = tokio::select! {
        () = signals.any() => Ok(()),
        why = fatal(engine.fatal()) => Err(Error::Fatal(why)),
        fault = node.tasks.fault() => Err(Error::Task(fault.task, fault.message)),
        fault = node.probes.fault() => Err(Error::Task(fault.task, fault.message)),
    };
    match &outcome {
        Ok(()) => tracing::info!("stopping"),
        Err(error) => tracing::error!(%error, "stopping"),
    }
    tokio::select! {
        () = node.stop(engine) => outcome,
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
    engine: Arc<OnceLock<Arc<Engine>>>,
    door: OnceLock<Arc<Door>>,
    health: OnceLock<Arc<Health>>,
    /// Everything but the health listener.
    tasks: Tasks,
    /// The health listener, which stops last.
    probes: Tasks,
}

impl Node {
    fn new(config: Config, sizes: Sizes) -> Self {
        let status = NodeStatus::starting(&config.node.id, &config.cluster.name);
        Self {
            config,
            sizes,
            status: watch::Sender::new(status),
            engine: Arc::default(),
            door: OnceLock::new(),
            health: OnceLock::new(),
            tasks: Tasks::new(),
            probes: Tasks::new(),
        }
    }

    fn serve_health(&self, socket: TcpListener) {
        let bounds = Bounds {
            write_probe_age_max: self.config.sql.transaction_total + Duration::from_secs(30),
            ..Bounds::default()
        };
        let health = Arc::new(Health {
            status: self.status.subscribe(),
            bounds,
            engine: self.engine.clone(),
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

    /// Recovery may take long: it runs on a thread of its own, and `/startupz` waits for it.
    async fn open_engine(&self) -> Result<Arc<Engine>, Error> {
        self.status.send_modify(|status| {
            status.state = State::Recovering;
            status.detail = format!("opening {}", self.config.node.data_dir.display());
        });
        let options = engine_options(&self.config, &self.sizes);
        let opened = tokio::task::spawn_blocking(move || Engine::open(options)).await;
        let engine = opened.expect("opening does not panic; the engine contains its own")?;
        self.engine.set(engine.clone()).ok();
        Ok(engine)
    }

    async fn take_role(&self, engine: &Arc<Engine>) -> Result<(), Error> {
        if self.config.cluster.role == RoleSetting::Replica {
            return Err(Error::Unsupported(
                "a replica needs a primary to follow: set cluster.primary".into(),
            ));
        }
        let (starting, id) = (engine.clone(), self.config.node.id.clone());
        let started = tokio::task::spawn_blocking(move || starting.start_primary(&id, "start"));
        started.await.expect("starting does not panic")?;
        let identity = Identity::read(engine)?;
        self.status.send_modify(|status| {
            status.cluster_id = identity.cluster_id;
            status.epoch = identity.epoch;
            status.role = Role::Primary;
            status.primary = Some(status.node.clone());
            status.state = State::Ready;
            status.reason = Reason::None;
            status.detail = "takes writes".to_owned();
        });
        Ok(())
    }

    fn serve_clients(&self, socket: TcpListener, engine: &Arc<Engine>) {
        let http = self.config.http.clone();
        let door = Arc::new(Door {
            engine: engine.clone(),
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
        let routes = front::router(door.clone()).merge(health::shared_routes(health.clone()));
        let serve = listener::serve(socket, routes, limits, self.tasks.clone());
        self.tasks.spawn("client listener", serve);
        self.tasks.spawn("stream expiry", expire(door.clone()));
        self.door.set(door).ok();
        self.status.send_modify(|status| status.started = true);
        health.test_now.notify_one();
    }

    fn announce(&self) {
        let listen = &self.config.listen;
        tracing::info!(
            node = self.config.node.id,
            client = %listen.client,
            health = %listen.health,
            data_dir = %self.config.node.data_dir.display(),
            "serving"
        );
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            eprintln!("{}", greeting(&self.config));
        }
    }

    async fn stop(&self, engine: Arc<Engine>) {
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
        let closing = tokio::task::spawn_blocking(move || engine.shutdown());
        if tokio::time::timeout(left(), closing).await.is_err() {
            tracing::warn!("the engine did not close in time; it recovers at the next start");
        }
        self.probes.stop();
        self.probes.wait(left().min(Duration::from_secs(1))).await;
        tracing::info!("stopped");
    }
}

/// Which cluster this copy belongs to, and in which epoch its history is.
struct Identity {
    cluster_id: String,
    epoch: u64,
}

impl Identity {
    /// A few rows: short enough to be read here.
    fn read(engine: &Engine) -> Result<Self, tidegate_engine::Error> {
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

/// Waits until the engine says that the process must exit.
async fn fatal(mut reason: watch::Receiver<Option<String>>) -> String {
    match reason.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().expect("waited for one"),
        Err(_) => std::future::pending().await,
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
