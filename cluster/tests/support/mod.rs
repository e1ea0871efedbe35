//! A node inside the test: the real engine behind the real listener on a free port.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::config::{Config, Low};
use tidegate::front::body::BodyBudget;
use tidegate::front::hrana::streams::Streams;
use tidegate::front::{self, Door, listener};
use tidegate::mounted::EngineSlot;
use tidegate::status::{NodeStatus, StatusSender};
use tidegate::tasks::Tasks;
use tidegate_engine::{Engine, Options};
use tokio::sync::watch;

/// The cluster's id as the tests set it.
pub const CLUSTER: &str = "00112233445566778899aabbccddeeff";

/// A served engine.
pub struct Node {
    pub status: StatusSender,
    pub url: String,
    pub http: reqwest::Client,
    tasks: Tasks,
    _shown: watch::Sender<Option<Arc<Engine>>>,
    _dir: TempDir,
}

impl Node {
    /// With default settings.
    pub async fn start() -> Self {
        Self::start_with(|_, _| ()).await
    }

    /// With settings changed.
    pub async fn start_with(change: impl FnOnce(&mut Config, &mut Options)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::resolve(&Low::default()).expect("defaults work");
        let mut options = Options::new(dir.path().join("data"));
        change(&mut config, &mut options);
        let result_bytes_max = options.result_bytes_max;
        let engine = Engine::open(options).expect("opens");
        engine.start_primary("n1", "test").expect("starts");
        let shown = watch::Sender::new(Some(engine));
        let mut status = NodeStatus::starting("n1", "test");
        status.cluster_id = CLUSTER.to_owned();
        status.epoch = 1;
        let (status, receiver) = watch::channel(status);
        let tasks = Tasks::new();
        let http = config.http;
        let door = Arc::new(Door {
            engine: EngineSlot::new(shown.subscribe()),
            forwarder: None,
            streams: Streams::new("n1", http.streams_max, http.stream_idle),
            status: receiver,
            bodies: BodyBudget::new(256 << 20, http.request_bytes_max, http.body_timeout),
            reply_bytes_max: result_bytes_max,
            stopping: tasks.stopping(),
            config: http,
        });
        let socket = listener::bind("127.0.0.1:0".parse().expect("an address")).expect("binds");
        let url = format!("http://{}", socket.local_addr().expect("bound"));
        let limits = listener::Limits {
            connections_max: 64,
            keep_alive: Duration::from_secs(60),
        };
        let serve = listener::serve(socket, front::router(door.clone()), limits, tasks.clone());
        tasks.spawn("listener", serve);
        Self {
            status,
            url,
            http: reqwest::Client::new(),
            tasks,
            _shown: shown,
            _dir: dir,
        }
    }

    /// Posts a body: status, headers, text.
    pub async fn post(
        &self,
        path: &str,
        body: impl ToString,
    ) -> (u16, reqwest::header::HeaderMap, String) {
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .body(body.to_string());
        let answer = request.send().await.expect("an answer");
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, headers, answer.text().await.expect("a body"))
    }

    /// Posts a body: status and JSON.
    pub async fn json(&self, path: &str, body: Value) -> (u16, Value) {
        let (status, _, text) = self.post(path, body).await;
        (status, serde_json::from_str(&text).expect("JSON"))
    }

    /// Runs requests on a stream: the reply's JSON. The status must be 200.
    pub async fn pipeline(&self, baton: &Value, requests: Value) -> Value {
        let body = json!({"baton": baton, "requests": requests});
        let (status, reply) = self.json("/v3/pipeline", body).await;
        assert_eq!(status, 200, "{reply}");
        reply
    }

    /// Runs statements on a stream of their own: one result or error each.
    pub async fn run(&self, statements: &[&str]) -> Vec<Value> {
        let mut requests: Vec<Value> = statements.iter().map(|sql| execute(sql)).collect();
        requests.push(json!({"type": "close"}));
        let reply = self.pipeline(&Value::Null, json!(requests)).await;
        let mut results = reply["results"].as_array().expect("results").clone();
        results.pop();
        results
    }

    /// The only value of a query's only row, in the protocol's form.
    pub async fn value(&self, sql: &str) -> Value {
        let results = self.run(&[sql]).await;
        let value = results[0]["response"]["result"]["rows"][0][0].clone();
        assert!(value.is_object(), "{}", results[0]);
        value
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

/// A request that runs a statement.
pub fn execute(sql: &str) -> Value {
    json!({"type": "execute", "stmt": {"sql": sql}})
}

/// An integer in the protocol's form.
pub fn integer(value: i64) -> Value {
    json!({"type": "integer", "value": value.to_string()})
}
