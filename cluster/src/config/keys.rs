//! The table of all keys.

/// How a key's value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Free text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A whole number, or `"auto"`.
    AutoCount,
    /// A size: a number of bytes, or `"64MiB"`.
    Bytes,
    /// A size, or `"auto"`.
    AutoBytes,
    /// `"250ms"`, `"5s"`, `"2m"`.
    Duration,
    /// `host:port` to listen on.
    Address,
    /// A path.
    Path,
    /// A list of texts; repeat the flag, or separate with commas in the variable.
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// Whether the nodes of a cluster must agree on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each node has its own.
    Node,
    /// Must be the same on every node; compared when nodes meet.
    Cluster,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Section and name in the file: `listen.client`.
    pub path: &'static str,
    /// The flag without its dashes; the variable has the same words.
    pub flag: &'static str,
    /// How it is written.
    pub kind: Kind,
    /// The default as TOML; `"auto"` is derived from the machine at start.
    pub default: &'static str,
    /// Who must agree.
    pub scope: Scope,
    /// What it does, with its unit and what happens at the limit.
    pub meaning: &'static str,
}

impl Key {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("TIDEGATE_{}", self.flag.replace('-', "_").to_uppercase())
    }

    /// Finds a key by its path.
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }
}

const fn node(
    path: &'static str,
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        path,
        flag,
        kind,
        default,
        scope: Scope::Node,
        meaning,
    }
}

const fn cluster(
    path: &'static str,
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    meaning: &'static str,
) -> Key {
    Key {
        path,
        flag,
        kind,
        default,
        scope: Scope::Cluster,
        meaning,
    }
}

/// Every key, in the order of the file.
pub const KEYS: &[Key] = &[
    node(
        "node.id",
        "node-id",
        Kind::Text,
        "\"\"",
        "Name of this node, unique in the cluster: up to 63 letters, digits, `-`, `_` and `.`. \
         Empty: the host name.",
    ),
    node(
        "node.data_dir",
        "data-dir",
        Kind::Path,
        "\"./tidegate-data\"",
        "Directory of the database. Created with mode 0700; locked while the node runs.",
    ),
    node(
        "node.memory",
        "memory",
        Kind::AutoBytes,
        "\"auto\"",
        "Memory to size caches and limits for. Auto: the smaller of the cgroup's limit and the \
         machine's memory.",
    ),
    node(
        "node.cpus",
        "cpus",
        Kind::AutoCount,
        "\"auto\"",
        "CPUs to size threads for. Auto: the smaller of the cgroup's quota and the CPUs this process \
         may use.",
    ),
    node(
        "node.shutdown_budget",
        "shutdown-budget",
        Kind::Duration,
        "\"20s\"",
        "Time for an ordered shutdown; what is left then is dropped. A second signal exits at once.",
    ),
    cluster(
        "cluster.name",
        "cluster-name",
        Kind::Text,
        "\"tidegate\"",
        "Name for people. The cluster's identity is a random id made at bootstrap.",
    ),
    cluster(
        "cluster.mode",
        "mode",
        Kind::Choice(&["static", "managed"]),
        "\"static\"",
        "`static`: roles are decided by the operator and by the history. `managed`: three voters \
         elect the primary; not in this version.",
    ),
    node(
        "cluster.role",
        "role",
        Kind::Choice(&["primary", "replica", "ordinal", "data", "witness"]),
        "\"primary\"",
        "Role of a node whose data directory is empty; afterwards the history decides. `ordinal`: \
         a host name ending in -0 is the primary, any other a replica. `data` and `witness` belong \
         to managed mode.",
    ),
    node(
        "cluster.primary",
        "primary",
        Kind::Text,
        "\"\"",
        "`http://host:9070` of the node that a static replica follows at first.",
    ),
    node(
        "cluster.peers",
        "peer",
        Kind::List,
        "[]",
        "The other nodes, as `id=http://host:9070`. Every node dials all of them, a primary too: \
         that is how two primaries find each other, and how a replica finds the primary.",
    ),
    cluster(
        "cluster.ack",
        "ack",
        Kind::Count,
        "0",
        "Replicas that must hold a commit durably before it is answered. With fewer attached a \
         write is refused before it runs. Above 0: not in this version.",
    ),
    node(
        "cluster.ack_timeout",
        "ack-timeout",
        Kind::Duration,
        "\"5s\"",
        "Longest wait for those replicas after the local commit; then the answer is \
         `TIDEGATE_INDETERMINATE`.",
    ),
    node(
        "cluster.proof_renewal",
        "proof-renewal",
        Kind::Duration,
        "\"60m\"",
        "Age at which a replica proves in the background, at a low rate, that its rows are still \
         equal. A change made behind the daemon's back is found within this time and one pass.",
    ),
    node(
        "cluster.log_keep_rows",
        "log-keep-rows",
        Kind::Count,
        "10000000",
        "Changes that the log keeps for a replica that lacks them. One that lacks more is marked \
         `needs_snapshot`, and its slot no longer holds the log. At least 1.",
    ),
    node(
        "cluster.log_keep_age",
        "log-keep-age",
        Kind::Duration,
        "\"168h\"",
        "How long the log is kept for a replica that lacks something and was not heard. Then it is \
         marked in the same way. Counted from this node's start at the earliest.",
    ),
    node(
        "listen.client",
        "client-addr",
        Kind::Address,
        "\"127.0.0.1:8080\"",
        "Where clients connect: Hrana over HTTP and WebSocket.",
    ),
    node(
        "listen.peer",
        "peer-addr",
        Kind::Address,
        "\"127.0.0.1:9070\"",
        "Where other nodes connect: gRPC.",
    ),
    node(
        "listen.health",
        "health-addr",
        Kind::Address,
        "\"127.0.0.1:7071\"",
        "Health, status and metrics, over HTTP, GET only, without authentication.",
    ),
    node(
        "listen.insecure",
        "insecure-listen",
        Kind::Flag,
        "false",
        "Allows listening outside loopback without TLS and tokens. Shown by the metric \
         `tidegate_insecure_listen`.",
    ),
    cluster(
        "sql.foreign_keys",
        "foreign-keys",
        Kind::Flag,
        "true",
        "Foreign keys are enforced in new sessions, as libSQL does. A session changes its own with \
         `PRAGMA foreign_keys`.",
    ),
    cluster(
        "sql.synchronous",
        "synchronous",
        Kind::Choice(&["full", "normal"]),
        "\"full\"",
        "`full`: a commit is answered after its fsync. `normal`: fsync at checkpoints only; a crash \
         of the machine may lose answered commits, so use it with `ack` of 1 or more.",
    ),
    cluster(
        "sql.sql_bytes_max",
        "sql-bytes-max",
        Kind::Bytes,
        "\"1MiB\"",
        "Longest text of one statement; longer is refused before parsing.",
    ),
    cluster(
        "sql.nesting_max",
        "nesting-max",
        Kind::Count,
        "100",
        "Deepest nesting of parentheses in a statement; deeper is refused before parsing.",
    ),
    cluster(
        "sql.params_max",
        "params-max",
        Kind::Count,
        "32766",
        "Most parameters of one statement.",
    ),
    cluster(
        "sql.compound_terms_max",
        "compound-terms-max",
        Kind::Count,
        "500",
        "Most UNIONs, INTERSECTs and EXCEPTs in one statement.",
    ),
    cluster(
        "sql.selects_max",
        "selects-max",
        Kind::Count,
        "1000",
        "Most SELECTs in one statement.",
    ),
    cluster(
        "sql.with_tables_max",
        "with-tables-max",
        Kind::Count,
        "100",
        "Most tables in the WITH clauses of one statement.",
    ),
    cluster(
        "sql.upsert_clauses_max",
        "upsert-clauses-max",
        Kind::Count,
        "32",
        "Most ON CONFLICT clauses of one statement.",
    ),
    cluster(
        "sql.script_bytes_max",
        "script-bytes-max",
        Kind::Bytes,
        "\"16MiB\"",
        "Longest script (a Hrana `sequence`).",
    ),
    cluster(
        "sql.script_statements_max",
        "script-statements-max",
        Kind::Count,
        "10000",
        "Most statements of one script (a Hrana `sequence`).",
    ),
    node(
        "sql.result_bytes_max",
        "result-bytes-max",
        Kind::AutoBytes,
        "\"auto\"",
        "Largest result of one statement; a larger one is `TIDEGATE_TOO_LARGE`. Auto: an eighth of \
         the memory, between 16 MiB and 256 MiB.",
    ),
    node(
        "sql.statement_timeout",
        "statement-timeout",
        Kind::Duration,
        "\"30s\"",
        "Longest run of one statement; then it is interrupted (`SQLITE_INTERRUPT`).",
    ),
    node(
        "sql.write_timeout",
        "write-timeout",
        Kind::Duration,
        "\"10s\"",
        "Longest run of a write outside a transaction: it holds up all others.",
    ),
    node(
        "sql.permit_wait",
        "permit-wait",
        Kind::Duration,
        "\"30s\"",
        "Longest wait of a write for the write permit; then it is answered `TIDEGATE_OVERLOADED`, \
         not executed.",
    ),
    node(
        "sql.transaction_idle",
        "transaction-idle",
        Kind::Duration,
        "\"30s\"",
        "An interactive transaction without a statement for this long is rolled back \
         (`TIDEGATE_TXN_TIMEOUT`).",
    ),
    node(
        "sql.transaction_permit_idle",
        "transaction-permit-idle",
        Kind::Duration,
        "\"5s\"",
        "The same for a transaction that has written and so keeps every other writer waiting.",
    ),
    node(
        "sql.transaction_total",
        "transaction-total",
        Kind::Duration,
        "\"60s\"",
        "Longest life of an interactive transaction; then it is rolled back.",
    ),
    node(
        "sql.transactions_max",
        "transactions-max",
        Kind::AutoCount,
        "\"auto\"",
        "Interactive transactions open at once, each with a thread and a connection of its own; one \
         more is `TIDEGATE_OVERLOADED`. Auto: 16 for each CPU, between 16 and 256, and at most one \
         for each 8 MiB of memory.",
    ),
    node(
        "sql.readers",
        "readers",
        Kind::AutoCount,
        "\"auto\"",
        "Threads that run reads outside transactions. Auto: one for each CPU, at least 2, at most 32.",
    ),
    node(
        "sql.cache",
        "cache",
        Kind::AutoBytes,
        "\"auto\"",
        "Page cache of one connection. Auto: a tenth of the memory shared by all connections, \
         between 1 MiB and 8 MiB.",
    ),
    node(
        "sql.write_queue_max",
        "write-queue-max",
        Kind::Count,
        "4096",
        "Writes waiting for the writer; one more is `TIDEGATE_OVERLOADED`.",
    ),
    node(
        "sql.read_queue_max",
        "read-queue-max",
        Kind::Count,
        "4096",
        "Reads waiting for a reader; one more is `TIDEGATE_OVERLOADED`.",
    ),
    node(
        "sql.group_max",
        "group-max",
        Kind::Count,
        "512",
        "Most writes that share one commit. Nothing waits for company.",
    ),
    node(
        "sql.checkpoint_bytes",
        "checkpoint-bytes",
        Kind::Bytes,
        "\"4MiB\"",
        "Size of the write-ahead log at which it is moved into the database file.",
    ),
    node(
        "sql.wal_bytes_max",
        "wal-bytes-max",
        Kind::Bytes,
        "\"64MiB\"",
        "Size of the write-ahead log at which reads that keep it from being moved are interrupted.",
    ),
    node(
        "http.connections_max",
        "connections-max",
        Kind::Count,
        "4096",
        "Client connections open at once; more wait in the kernel's accept queue.",
    ),
    node(
        "http.request_bytes_max",
        "request-bytes-max",
        Kind::Bytes,
        "\"96MiB\"",
        "Largest request body: room for a value of 64 MiB in base64. A larger one is status 413.",
    ),
    node(
        "http.request_memory",
        "request-memory",
        Kind::AutoBytes,
        "\"auto\"",
        "Bytes of request bodies held at once over all connections; beyond it requests are \
         `TIDEGATE_OVERLOADED`. Auto: an eighth of the memory, at least `request_bytes_max`.",
    ),
    node(
        "http.keep_alive",
        "keep-alive",
        Kind::Duration,
        "\"75s\"",
        "Longest time from the end of one request to the whole head of the next; then the \
         connection is closed.",
    ),
    node(
        "http.body_timeout",
        "body-timeout",
        Kind::Duration,
        "\"60s\"",
        "Longest time for the body of a request to arrive.",
    ),
    node(
        "http.streams_max",
        "streams-max",
        Kind::Count,
        "10000",
        "Hrana streams kept between requests. When full, the longest idle one without a transaction \
         makes room; if all hold one, `TIDEGATE_OVERLOADED`.",
    ),
    node(
        "http.stream_idle",
        "stream-idle",
        Kind::Duration,
        "\"30s\"",
        "A Hrana stream without a request for this long is closed and its transaction rolled back.",
    ),
    node(
        "http.websocket_streams_max",
        "websocket-streams-max",
        Kind::Count,
        "128",
        "Streams of one WebSocket connection.",
    ),
    node(
        "http.base_url",
        "base-url",
        Kind::Text,
        "\"\"",
        "Sent as `base_url` with every baton, so that clients behind a load balancer stay on this \
         node for the rest of a stream. Empty: not sent.",
    ),
    node(
        "http.wait_position",
        "wait-position",
        Kind::Duration,
        "\"5s\"",
        "Longest wait of a request for the position in its `tidegate-position` header; then \
         `TIDEGATE_STALE`.",
    ),
    node(
        "http.origins",
        "origin",
        Kind::List,
        "[\"loopback\"]",
        "Pages whose browsers may use this node, such as `https://app.example`; `loopback` stands \
         for pages of this machine, `*` for all. Programs that are no browsers send no origin and are \
         not affected.",
    ),
    node(
        "log.level",
        "log-level",
        Kind::Text,
        "\"info\"",
        "`error`, `warn`, `info`, `debug`, `trace`, or a filter such as `info,tidegate=debug`.",
    ),
    node(
        "log.format",
        "log-format",
        Kind::Choice(&["auto", "text", "json"]),
        "\"auto\"",
        "`auto`: text on a terminal, JSON otherwise.",
    ),
    node(
        "tls.client_cert",
        "tls-client-cert",
        Kind::Path,
        "\"\"",
        "Certificate chain of the client listener. Not in this version: a value is refused.",
    ),
    node(
        "tls.client_key",
        "tls-client-key",
        Kind::Path,
        "\"\"",
        "Its key. Not in this version.",
    ),
    node(
        "tls.client_ca",
        "tls-client-ca",
        Kind::Path,
        "\"\"",
        "Who may sign clients' certificates. Not in this version.",
    ),
    node(
        "tls.peer_cert",
        "tls-peer-cert",
        Kind::Path,
        "\"\"",
        "Certificate chain between nodes. Not in this version.",
    ),
    node(
        "tls.peer_key",
        "tls-peer-key",
        Kind::Path,
        "\"\"",
        "Its key. Not in this version.",
    ),
    node(
        "tls.peer_ca",
        "tls-peer-ca",
        Kind::Path,
        "\"\"",
        "Who may sign nodes' certificates. Not in this version.",
    ),
    node(
        "auth.tokens_file",
        "tokens-file",
        Kind::Path,
        "\"\"",
        "File of access tokens. Not in this version: without it only loopback is served.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn paths_and_flags_are_unique_and_every_key_says_what_it_means() {
        let paths: HashSet<_> = KEYS.iter().map(|key| key.path).collect();
        let flags: HashSet<_> = KEYS.iter().map(|key| key.flag).collect();
        assert_eq!((paths.len(), flags.len()), (KEYS.len(), KEYS.len()));
        assert!(KEYS.iter().all(|key| key.meaning.ends_with('.')));
    }

    #[test]
    fn the_variable_has_the_words_of_the_flag() {
        let key = Key::find("listen.client").expect("a known key");
        assert_eq!(key.variable(), "TIDEGATE_CLIENT_ADDR");
    }
}
