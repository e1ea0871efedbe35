//! The resolved configuration: parsed, and checked as a whole.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use super::keys::{Key, Kind};
use super::low::{Low, Origin, Typed};
use super::{Problem, Problems, units};

/// Everything the daemon is told. `None` where a value is derived from the machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `[node]`
    pub node: NodeConfig,
    /// `[cluster]`
    pub cluster: ClusterConfig,
    /// `[listen]`
    pub listen: ListenConfig,
    /// `[sql]`
    pub sql: SqlConfig,
    /// `[http]`
    pub http: HttpConfig,
    /// `[log]`
    pub log: LogConfig,
}

/// This node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConfig {
    /// Its name; the host name when none was given.
    pub id: String,
    /// Directory of the database.
    pub data_dir: PathBuf,
    /// Memory to size for.
    pub memory: Option<u64>,
    /// CPUs to size for.
    pub cpus: Option<u64>,
    /// Time for an ordered shutdown.
    pub shutdown_budget: Duration,
}

/// How roles are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By the operator and the history.
    Static,
    /// By a quorum.
    Managed,
}

/// What a node with an empty data directory becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleSetting {
    /// Takes writes.
    Primary,
    /// Follows.
    Replica,
}

/// The cluster this node belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterConfig {
    /// Name for people.
    pub name: String,
    /// How roles are decided.
    pub mode: Mode,
    /// Role of an empty node.
    pub role: RoleSetting,
    /// Whom a static replica follows at first.
    pub primary: Option<String>,
    /// Name and address of each other node.
    pub peers: Vec<(String, String)>,
    /// Replicas that must hold a commit before it is answered.
    pub ack: u64,
    /// Longest wait for them.
    pub ack_timeout: Duration,
    /// Age at which a proof is renewed.
    pub proof_renewal: Duration,
    /// Changes kept for a replica that lacks them.
    pub log_keep_rows: u64,
    /// Time they are kept for a replica that is not heard.
    pub log_keep_age: Duration,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenConfig {
    /// Clients.
    pub client: SocketAddr,
    /// Other nodes.
    pub peer: SocketAddr,
    /// Health, status, metrics.
    pub health: SocketAddr,
    /// Outside loopback without TLS and tokens.
    pub insecure: bool,
}

/// How durable a commit is when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synchronous {
    /// fsync at each commit.
    Full,
    /// fsync at checkpoints.
    Normal,
}

/// Limits and habits of SQL.
#[derive(Debug, Clone, PartialEq)]
pub struct SqlConfig {
    /// Foreign keys in new sessions.
    pub foreign_keys: bool,
    /// Durability.
    pub synchronous: Synchronous,
    /// Longest statement.
    pub sql_bytes_max: usize,
    /// Deepest statement.
    pub nesting_max: usize,
    /// Most parameters.
    pub params_max: usize,
    /// Most UNIONs and the like in a statement.
    pub compound_terms_max: usize,
    /// Most SELECTs in a statement.
    pub selects_max: usize,
    /// Most WITH tables of a statement.
    pub with_tables_max: usize,
    /// Most ON CONFLICT clauses of a statement.
    pub upsert_clauses_max: usize,
    /// Longest script.
    pub script_bytes_max: usize,
    /// Most statements of a script.
    pub script_statements_max: usize,
    /// Largest result.
    pub result_bytes_max: Option<u64>,
    /// Longest statement in time.
    pub statement_timeout: Duration,
    /// Longest write outside a transaction.
    pub write_timeout: Duration,
    /// Longest wait for the write permit.
    pub permit_wait: Duration,
    /// Idle limit of a transaction.
    pub transaction_idle: Duration,
    /// Idle limit of one that holds the write permit.
    pub transaction_permit_idle: Duration,
    /// Total limit of a transaction.
    pub transaction_total: Duration,
    /// Open interactive transactions.
    pub transactions_max: Option<u64>,
    /// Reader threads.
    pub readers: Option<u64>,
    /// Page cache of a connection.
    pub cache: Option<u64>,
    /// Waiting writes.
    pub write_queue_max: usize,
    /// Waiting reads.
    pub read_queue_max: usize,
    /// Writes in one commit.
    pub group_max: usize,
    /// Size of the write-ahead log that asks for a checkpoint.
    pub checkpoint_bytes: u64,
    /// Size of it that interrupts readers.
    pub wal_bytes_max: u64,
}

/// Limits of the client listener.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpConfig {
    /// Open connections.
    pub connections_max: usize,
    /// Largest body.
    pub request_bytes_max: u64,
    /// Bodies held at once.
    pub request_memory: Option<u64>,
    /// Time from one request to the head of the next.
    pub keep_alive: Duration,
    /// Time for a request's body.
    pub body_timeout: Duration,
    /// Streams between requests.
    pub streams_max: usize,
    /// Idle limit of a stream.
    pub stream_idle: Duration,
    /// Streams of one WebSocket.
    pub websocket_streams_max: usize,
    /// Sent with batons.
    pub base_url: Option<String>,
    /// Longest wait for an asked-for position.
    pub wait_position: Duration,
    /// Pages that browsers may use this node for.
    pub origins: Vec<String>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// Text.
    Text,
    /// JSON.
    Json,
}

/// Logging.
#[derive(Debug, Clone, PartialEq)]
pub struct LogConfig {
    /// A level or a filter.
    pub level: String,
    /// The form.
    pub format: LogFormat,
}

impl Config {
    /// Parses and checks what was typed. Reports every problem at once.
    pub fn resolve(low: &Low) -> Result<Self, Problems> {
        let mut read = Reader {
            low,
            problems: Vec::new(),
        };
        let config = Self {
            node: node(&mut read),
            cluster: cluster(&mut read),
            listen: listen(&mut read),
            sql: sql(&mut read),
            http: http(&mut read),
            log: LogConfig {
                level: read.text("log.level"),
                format: match read.text("log.format").as_str() {
                    "text" => LogFormat::Text,
                    "json" => LogFormat::Json,
                    _ => LogFormat::Auto,
                },
            },
        };
        config.check(&mut read);
        if read.problems.is_empty() {
            Ok(config)
        } else {
            Err(Problems(read.problems))
        }
    }

    /// True when a listener is reachable from other machines.
    pub fn listens_outside_loopback(&self) -> bool {
        [self.listen.client, self.listen.peer, self.listen.health]
            .iter()
            .any(|address| !address.ip().is_loopback())
    }

    fn check(&self, read: &mut Reader<'_>) {
        for (path, address) in [
            ("listen.client", self.listen.client),
            ("listen.peer", self.listen.peer),
        ] {
            if !address.ip().is_loopback() && !self.listen.insecure {
                read.problem(
                    path,
                    "listens outside loopback without TLS and tokens; anybody who reaches it can \
                     read and write. Allow that with `listen.insecure = true` \
                     (--insecure-listen), or listen on 127.0.0.1",
                );
            }
        }
        if self.cluster.mode == Mode::Managed {
            read.problem("cluster.mode", "managed mode is not in this version");
        }
        if self.cluster.ack > 0 {
            // Taking the setting and not keeping it would promise more than is so.
            read.problem(
                "cluster.ack",
                "above 0 is not in this version: writes are answered after the local commit",
            );
        }
        if !valid_id(&self.node.id) {
            read.problem(
                "node.id",
                "must be 1 to 63 letters, digits, `-`, `_` or `.`; set one with --node-id",
            );
        }
        self.check_peers(read);
        for path in UNSUPPORTED {
            if !read.text(path).is_empty() {
                read.problem(path, "is not in this version; remove it");
            }
        }
        if self.sql.transaction_total < self.sql.transaction_idle {
            read.problem(
                "sql.transaction_total",
                "must not be below sql.transaction_idle",
            );
        }
    }
}

impl Config {
    /// A list that names this node, or one node or address twice, is a copied line that nobody
    /// corrected; what it would do is worse than not starting.
    fn check_peers(&self, read: &mut Reader<'_>) {
        let path = "cluster.peers";
        let mut seen = Vec::new();
        for (id, url) in &self.cluster.peers {
            if *id == self.node.id {
                read.problem(
                    path,
                    format!("names this node ({id}); list the other nodes only"),
                );
            }
            for word in [id, url] {
                if seen.contains(&word) {
                    read.problem(path, format!("names {word} twice"));
                }
                seen.push(word);
            }
        }
    }
}

/// Keys that have a name already but no function yet.
const UNSUPPORTED: &[&str] = &[
    "tls.client_cert",
    "tls.client_key",
    "tls.client_ca",
    "tls.peer_cert",
    "tls.peer_key",
    "tls.peer_ca",
    "auth.tokens_file",
];

fn node(read: &mut Reader<'_>) -> NodeConfig {
    let id = read.text("node.id");
    NodeConfig {
        id: if id.is_empty() { host_name() } else { id },
        data_dir: read.text("node.data_dir").into(),
        memory: read.auto("node.memory"),
        cpus: read.auto("node.cpus"),
        shutdown_budget: read.duration("node.shutdown_budget"),
    }
}

fn cluster(read: &mut Reader<'_>) -> ClusterConfig {
    let mode = match read.text("cluster.mode").as_str() {
        "managed" => Mode::Managed,
        _ => Mode::Static,
    };
    let role = match read.text("cluster.role").as_str() {
        "replica" => RoleSetting::Replica,
        "ordinal" if !host_name().ends_with("-0") => RoleSetting::Replica,
        _ => RoleSetting::Primary,
    };
    let primary = read.text("cluster.primary");
    if !primary.is_empty() && !is_http_url(&primary) {
        read.problem("cluster.primary", "must be a URL such as http://host:9070");
    }
    ClusterConfig {
        name: read.text("cluster.name"),
        mode,
        role,
        primary: Some(primary).filter(|url| !url.is_empty()),
        peers: read.peers(),
        ack: read.count("cluster.ack"),
        ack_timeout: read.duration("cluster.ack_timeout"),
        proof_renewal: read.duration("cluster.proof_renewal"),
        log_keep_rows: read.size("cluster.log_keep_rows") as u64,
        log_keep_age: read.duration("cluster.log_keep_age"),
    }
}

fn listen(read: &mut Reader<'_>) -> ListenConfig {
    ListenConfig {
        client: read.address("listen.client"),
        peer: read.address("listen.peer"),
        health: read.address("listen.health"),
        insecure: read.flag("listen.insecure"),
    }
}

fn sql(read: &mut Reader<'_>) -> SqlConfig {
    SqlConfig {
        foreign_keys: read.flag("sql.foreign_keys"),
        synchronous: match read.text("sql.synchronous").as_str() {
            "normal" => Synchronous::Normal,
            _ => Synchronous::Full,
        },
        sql_bytes_max: read.size("sql.sql_bytes_max"),
        nesting_max: read.size("sql.nesting_max"),
        params_max: read.size("sql.params_max"),
        compound_terms_max: read.size("sql.compound_terms_max"),
        selects_max: read.size("sql.selects_max"),
        with_tables_max: read.size("sql.with_tables_max"),
        upsert_clauses_max: read.size("sql.upsert_clauses_max"),
        script_bytes_max: read.size("sql.script_bytes_max"),
        script_statements_max: read.size("sql.script_statements_max"),
        result_bytes_max: read.auto("sql.result_bytes_max"),
        statement_timeout: read.duration("sql.statement_timeout"),
        write_timeout: read.duration("sql.write_timeout"),
        permit_wait: read.duration("sql.permit_wait"),
        transaction_idle: read.duration("sql.transaction_idle"),
        transaction_permit_idle: read.duration("sql.transaction_permit_idle"),
        transaction_total: read.duration("sql.transaction_total"),
        transactions_max: read.auto("sql.transactions_max"),
        readers: read.auto("sql.readers"),
        cache: read.auto("sql.cache"),
        write_queue_max: read.size("sql.write_queue_max"),
        read_queue_max: read.size("sql.read_queue_max"),
        group_max: read.size("sql.group_max"),
        checkpoint_bytes: read.count("sql.checkpoint_bytes"),
        wal_bytes_max: read.count("sql.wal_bytes_max"),
    }
}

fn http(read: &mut Reader<'_>) -> HttpConfig {
    let base_url = read.text("http.base_url");
    if !base_url.is_empty() && !is_http_url(&base_url) {
        read.problem("http.base_url", "must be a URL such as http://host:8080");
    }
    HttpConfig {
        connections_max: read.size("http.connections_max"),
        request_bytes_max: read.count("http.request_bytes_max"),
        request_memory: read.auto("http.request_memory"),
        keep_alive: read.duration("http.keep_alive"),
        body_timeout: read.duration("http.body_timeout"),
        streams_max: read.size("http.streams_max"),
        stream_idle: read.duration("http.stream_idle"),
        websocket_streams_max: read.size("http.websocket_streams_max"),
        base_url: Some(base_url).filter(|url| !url.is_empty()),
        wait_position: read.duration("http.wait_position"),
        origins: read.typed("http.origins").texts,
    }
}

/// Reads typed values and collects problems; a bad value reads as its default.
struct Reader<'a> {
    low: &'a Low,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn text(&mut self, path: &'static str) -> String {
        let key = key(path);
        let text = self.typed(path).texts.pop().unwrap_or_default();
        if let Kind::Choice(words) = key.kind
            && !words.contains(&text.as_str())
        {
            self.problem(path, format!("`{text}` is not one of {}", words.join(", ")));
            return default(key);
        }
        text
    }

    fn flag(&mut self, path: &'static str) -> bool {
        self.parse(path, |text| match text {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(format!("`{text}` is not `true` or `false`")),
        })
    }

    /// A count or a size in bytes.
    fn count(&mut self, path: &'static str) -> u64 {
        self.parse(path, units::bytes)
    }

    /// A limit: at least one.
    fn size(&mut self, path: &'static str) -> usize {
        self.parse(path, |text| {
            let number = units::bytes(text)?;
            match usize::try_from(number) {
                Ok(size) if size > 0 => Ok(size),
                _ => Err("must be at least 1".to_owned()),
            }
        })
    }

    /// A positive number, or `None` for `auto`.
    fn auto(&mut self, path: &'static str) -> Option<u64> {
        self.parse(path, |text| match text {
            "auto" => Ok(None),
            text => match units::bytes(text)? {
                0 => Err("must be at least 1, or `auto`".to_owned()),
                number => Ok(Some(number)),
            },
        })
    }

    fn duration(&mut self, path: &'static str) -> Duration {
        self.parse(path, units::duration)
    }

    fn address(&mut self, path: &'static str) -> SocketAddr {
        self.parse(path, |text| {
            text.to_socket_addrs()
                .map_err(|e| format!("`{text}` is not an address to listen on: {e}"))?
                .next()
                .ok_or_else(|| format!("`{text}` has no address"))
        })
    }

    fn peers(&mut self) -> Vec<(String, String)> {
        let path = "cluster.peers";
        let mut peers = Vec::new();
        for text in self.typed(path).texts {
            match text.split_once('=') {
                Some((id, url)) if valid_id(id) && is_http_url(url) => {
                    peers.push((id.to_owned(), url.to_owned()));
                }
                _ => self.problem(path, format!("`{text}` is not like `n2=http://host:9070`")),
            }
        }
        peers
    }

    fn parse<T>(&mut self, path: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let text = self.typed(path).texts.pop().unwrap_or_default();
        parse(&text).unwrap_or_else(|message| {
            self.problem(path, message);
            parse(&default(key(path))).expect("defaults parse")
        })
    }

    fn typed(&self, path: &'static str) -> Typed {
        self.low.get(path).cloned().unwrap_or_else(|| Typed {
            texts: match key(path).kind {
                Kind::List => default_list(key(path)),
                _ => vec![default(key(path))],
            },
            origin: Origin::Default,
        })
    }

    fn problem(&mut self, path: &'static str, message: impl Into<String>) {
        let place = match self.low.get(path) {
            Some(typed) => format!("{path} ({})", typed.origin),
            None => path.to_owned(),
        };
        self.problems.push(Problem::new(place, message));
    }
}

fn key(path: &str) -> &'static Key {
    Key::find(path).expect("the table holds every key that is read")
}

/// The default without the quotes it has in TOML.
fn default(key: &Key) -> String {
    key.default.trim_matches('"').to_owned()
}

/// `["a", "b"]` without its brackets and quotes.
fn default_list(key: &Key) -> Vec<String> {
    let inner = key.default.trim_matches(['[', ']']);
    inner
        .split(',')
        .map(|item| item.trim().trim_matches('"').to_owned())
        .filter(|item| !item.is_empty())
        .collect()
}

fn valid_id(id: &str) -> bool {
    (1..=63).contains(&id.len())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

fn is_http_url(text: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        text.strip_prefix(scheme)
            .is_some_and(|rest| !rest.is_empty())
    })
}

/// The host's name, or `node` where it has none.
fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| valid_id(name))
        .unwrap_or_else(|| "node".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn resolve(text: &str) -> Result<Config, Problems> {
        Config::resolve(&Low::from_toml(Path::new("t.toml"), text)?)
    }

    #[test]
    fn an_ack_that_nobody_keeps_is_refused() {
        let problems = resolve("[cluster]\nack = 1").expect_err("not kept");
        assert!(problems.to_string().contains("cluster.ack"), "{problems}");
    }

    #[test]
    fn nothing_typed_is_one_primary_on_loopback() {
        let config = resolve("").expect("defaults work");
        assert_eq!(config.cluster.role, RoleSetting::Primary);
        assert_eq!(config.listen.client.to_string(), "127.0.0.1:8080");
        assert!(!config.listens_outside_loopback());
        assert_eq!(config.sql.readers, None);
    }

    #[test]
    fn listening_outside_loopback_needs_a_word_that_says_so() {
        let problems = resolve("[listen]\nclient = \"0.0.0.0:8080\"").expect_err("refused");
        assert!(problems.to_string().contains("--insecure-listen"));
        let allowed = resolve("[listen]\nclient = \"0.0.0.0:8080\"\ninsecure = true");
        assert!(allowed.expect("allowed").listens_outside_loopback());
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_place() {
        let problems = resolve(
            "[cluster]\nrole = \"boss\"\npeers = [\"n2\"]\n[sql]\nreaders = 0\n\
             transaction_idle = \"5 bananas\"",
        )
        .expect_err("four problems");
        assert_eq!(problems.0.len(), 4, "{problems}");
        assert!(problems.to_string().contains("cluster.role (t.toml)"));
    }

    #[test]
    fn a_list_of_peers_names_each_other_node_once() {
        let with = |peers: &str| {
            resolve(&format!(
                "[node]\nid = \"n1\"\n[cluster]\npeers = [{peers}]"
            ))
        };
        with("\"n2=http://b:9070\", \"n3=http://c:9070\"").expect("fine");
        for (peers, word) in [
            ("\"n1=http://a:9070\"", "names this node (n1)"),
            (
                "\"n2=http://b:9070\", \"n2=http://c:9070\"",
                "names n2 twice",
            ),
            (
                "\"n2=http://b:9070\", \"n3=http://b:9070\"",
                "http://b:9070 twice",
            ),
        ] {
            let problems = with(peers).expect_err("refused").to_string();
            assert!(problems.contains(word), "{problems}");
        }
    }

    #[test]
    fn peers_have_a_name_and_an_address() {
        let config = resolve("[cluster]\npeers = [\"n2=http://b:9070\"]").expect("fine");
        assert_eq!(config.cluster.peers[0].1, "http://b:9070");
    }
}
