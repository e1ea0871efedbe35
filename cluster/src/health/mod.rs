//! The health listener: probes, status and metrics, GET only.
//!
//! It has a port and connections of its own, so that it answers when clients have used up
//! theirs, and it reads nothing but the status value and counters: no SQL runs for a probe.

mod query;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::metrics::Metrics;
use crate::mounted::EngineSlot;
use crate::readiness::{self, Bounds, CHECKS, Check, LagBound};
use crate::status::{NodeStatus, Position, Role, StatusReceiver, Verdict};
use query::Query;

/// Connections of the health listener.
pub const CONNECTIONS_MAX: usize = 256;

/// What stands behind the health listener.
pub struct Health {
    /// The node's status.
    pub status: StatusReceiver,
    /// Bounds of the checks.
    pub bounds: Bounds,
    /// The engine, once it is open.
    pub engine: EngineSlot,
    /// What `/metrics` gives.
    pub metrics: Metrics,
    /// Wakes the monitor before its time.
    pub test_now: Notify,
}

impl Health {
    /// The status with the head of this very moment.
    pub fn status(&self) -> NodeStatus {
        let mut status = self.status.borrow().clone();
        if let Some(engine) = self.engine.get() {
            let head = *engine.head().borrow();
            status.head = Position {
                seq: head.seq.get(),
                committed_ms: head.committed_ms,
            };
            status.log_floor = engine.floor().borrow().get();
        }
        status
    }

    fn checks(&self, query: &Query) -> Result<Vec<Check>, Rejection> {
        let status = self.status();
        let mut checks = readiness::checks(&status, &self.bounds, Instant::now());
        if let Some(bound) = query.lag_bound("maxlag")? {
            replace(&mut checks, readiness::lag_check(&status, bound));
        }
        match query.one("role") {
            None | Some("read") => {}
            Some("write") if status.role == Role::Primary => {}
            Some("write") => {
                let role = status.role.as_str();
                replace(
                    &mut checks,
                    failed("role", format!("{role}, which takes no writes")),
                );
            }
            Some(other) => return Err(bad_request(format!("role={other}: read or write"))),
        }
        for name in query.all("exclude") {
            if !CHECKS.contains(&name) {
                return Err(bad_request(format!(
                    "exclude={name}: the checks are {}",
                    CHECKS.join(", ")
                )));
            }
        }
        checks.retain(|check| !query.all("exclude").any(|name| name == check.name));
        Ok(checks)
    }
}

/// The routes.
pub fn router(health: Arc<Health>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/readyz/{check}", get(readyz_one))
        .route("/startupz", get(startupz))
        .route("/primary", get(primary))
        .route("/replica", get(replica))
        .route("/lag", get(lag))
        .route("/convergence", get(convergence))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .with_state(health)
}

/// The paths that commands ask for, for the client listener: `tidegate status` works with
/// either address.
pub fn shared_routes(health: Arc<Health>) -> Router {
    Router::new()
        .route("/readyz", get(readyz))
        .route("/lag", get(lag))
        .route("/convergence", get(convergence))
        .route("/status", get(status))
        .with_state(health)
}

type Shared = State<Arc<Health>>;
type Answer = Result<Response<Body>, Rejection>;

/// A request that makes no sense.
struct Rejection(StatusCode, String);

impl IntoResponse for Rejection {
    fn into_response(self) -> Response<Body> {
        text(self.0, self.1 + "\n")
    }
}

async fn livez(State(health): Shared, uri: Uri) -> Response<Body> {
    let check = Check {
        name: "storage",
        outcome: readiness::alive(&health.status(), Instant::now()),
    };
    answer(&[check], "livez", Query::of(&uri).has("verbose"))
}

async fn readyz(State(health): Shared, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    let checks = health.checks(&query)?;
    Ok(answer(&checks, "readyz", query.has("verbose")))
}

async fn readyz_one(State(health): Shared, Path(name): Path<String>, uri: Uri) -> Answer {
    let checks = health.checks(&Query::of(&uri))?;
    match checks.into_iter().find(|check| check.name == name) {
        // Asked for by name, an alarm is as good a reason as any.
        Some(check) => {
            let passed = check.outcome.is_ok();
            Ok(tell(&[check], "readyz", passed, true))
        }
        None => Err(Rejection(
            StatusCode::NOT_FOUND,
            format!("no check {name}; there are {}", CHECKS.join(", ")),
        )),
    }
}

async fn startupz(State(health): Shared, uri: Uri) -> Response<Body> {
    let status = health.status();
    let outcome = match status.started {
        true => Ok("configuration, lock, recovery and listeners are done".to_owned()),
        false => Err(status.detail),
    };
    let check = Check {
        name: "startup",
        outcome,
    };
    answer(&[check], "startupz", Query::of(&uri).has("verbose"))
}

async fn primary(State(health): Shared, uri: Uri) -> Answer {
    role_answer(&health, &Query::of(&uri), Role::Primary)
}

async fn replica(State(health): Shared, uri: Uri) -> Answer {
    role_answer(&health, &Query::of(&uri), Role::Replica)
}

fn role_answer(health: &Health, query: &Query, role: Role) -> Answer {
    let mut checks = health.checks(query)?;
    let status = health.status();
    if status.role != role {
        replace(
            &mut checks,
            failed(
                "role",
                format!("{}, not {}", status.role.as_str(), role.as_str()),
            ),
        );
    }
    if let Some(bound) = query.lag_bound("lag")? {
        replace(&mut checks, readiness::lag_check(&status, bound));
    }
    Ok(answer(&checks, role.as_str(), query.has("verbose")))
}

async fn lag(State(health): Shared, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    let status = health.status();
    let mut body = status.lag_json();
    let mut replicas = status.replica_list();
    if let Some(node) = query.one("node") {
        replicas.retain(|replica| replica.node == node);
        if replicas.is_empty() {
            let known = format!("no replica {node} is known here");
            return Err(Rejection(StatusCode::NOT_FOUND, known));
        }
        body["replicas"] = json!(replicas);
    }
    let late = match query.lag_bound("max")? {
        Some(bound) => replicas.iter().any(|replica| !bound.admits(&replica.lag)),
        None => false,
    };
    Ok(json_answer(
        if late {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::OK
        },
        &body,
    ))
}

async fn convergence(State(health): Shared) -> Response<Body> {
    let status = health.status();
    let replicas = status.replica_list();
    let verdict = replicas
        .iter()
        .map(|replica| {
            replica
                .proof
                .as_ref()
                .map_or(Verdict::Inconclusive, |p| p.verdict)
        })
        .max_by_key(|verdict| match verdict {
            Verdict::Equal => 0,
            Verdict::Running => 1,
            Verdict::Inconclusive => 2,
            Verdict::Diverged => 3,
        });
    // A primary alone has nobody to differ from, and nothing was compared.
    let verdict = verdict.unwrap_or(Verdict::Inconclusive);
    let code = match verdict {
        Verdict::Equal => StatusCode::OK,
        Verdict::Running => StatusCode::ACCEPTED,
        Verdict::Inconclusive => StatusCode::FAILED_DEPENDENCY,
        Verdict::Diverged => StatusCode::CONFLICT,
    };
    let nodes: Vec<Value> = replicas
        .iter()
        .map(|replica| json!({"node": replica.node, "proof": replica.proof}))
        .collect();
    let body = json!({
        "cluster_id": status.cluster_id,
        "epoch": status.epoch,
        "verdict": verdict,
        "replicas": nodes,
    });
    json_answer(code, &body)
}

async fn status(State(health): Shared) -> Response<Body> {
    let status = health.status();
    let mut body = status.json();
    let checks = readiness::checks(&status, &health.bounds, Instant::now());
    let (passing, failing): (Vec<_>, Vec<_>) = checks.into_iter().partition(Check::passes);
    body["ready"] = json!(failing.is_empty());
    body["failing"] = reasons(failing);
    body["alarms"] = reasons(passing);
    json_answer(StatusCode::OK, &body)
}

/// What is wrong, by check.
fn reasons(checks: Vec<Check>) -> Value {
    let wrong = checks
        .into_iter()
        .filter_map(|check| Some((check.name.to_owned(), Value::String(check.outcome.err()?))));
    Value::Object(wrong.collect())
}

async fn metrics(State(health): Shared) -> Response<Body> {
    let mut response = text(StatusCode::OK, health.metrics.encode(&health));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    response
}

fn answer(checks: &[Check], endpoint: &str, verbose: bool) -> Response<Body> {
    let passed = checks.iter().all(Check::passes);
    tell(checks, endpoint, passed, verbose)
}

fn tell(checks: &[Check], endpoint: &str, passed: bool, verbose: bool) -> Response<Body> {
    // A failing probe always says why: nobody should have to ask twice.
    let body = match passed && !verbose {
        true => "ok\n".to_owned(),
        false => readiness::verbose(checks, endpoint, passed),
    };
    if passed {
        return text(StatusCode::OK, body);
    }
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, body);
    let soon = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, soon);
    response
}

fn text(status: StatusCode, body: String) -> Response<Body> {
    (status, body).into_response()
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Body> {
    (status, axum::Json(body)).into_response()
}

fn replace(checks: &mut [Check], with: Check) {
    if let Some(check) = checks.iter_mut().find(|check| check.name == with.name) {
        *check = with;
    }
}

fn failed(name: &'static str, reason: String) -> Check {
    Check {
        name,
        outcome: Err(reason),
    }
}

fn bad_request(message: String) -> Rejection {
    Rejection(StatusCode::BAD_REQUEST, message)
}

impl Query {
    fn lag_bound(&self, name: &str) -> Result<Option<LagBound>, Rejection> {
        let Some(text) = self.one(name) else {
            return Ok(None);
        };
        match LagBound::parse(text) {
            Some(bound) => Ok(Some(bound)),
            None => Err(bad_request(format!(
                "{name}={text}: write it like 5s, 500changes or 16MB"
            ))),
        }
    }
}
