//! Calls that start work: `POST /admin/v1/…` on the client listener.
//!
//! The health listener answers GET only, so that nobody who may look may also change. Work
//! that takes time is started here and watched in `/status`.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use serde_json::json;
use tidegate_replica::follower::FollowerHandle;
use tidegate_replica::followers::Followers;
use tidegate_replica::ids::NodeId;
use tidegate_replica::slots::{self, Forgotten};
use tokio::sync::watch;

use crate::mounted::EngineSlot;
use crate::status::{NodeStatus, Role, State as NodeState, StatusReceiver};

/// What stands behind the calls.
pub struct Admin {
    /// On a primary: who follows.
    pub followers: Arc<Followers>,
    /// On a replica: its follower.
    pub follower: watch::Receiver<Option<FollowerHandle>>,
    /// Who this node is.
    pub status: StatusReceiver,
    /// The database, which keeps the slots of those who follow.
    pub engine: EngineSlot,
}

/// The routes.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/admin/v1/converge", post(converge))
        .route("/admin/v1/repair", post(repair))
        .route("/admin/v1/forget", post(forget))
        .with_state(admin)
}

/// Starts a convergence pass of every attached replica, or of this one. The answer names
/// them with the number of passes that had ended before, so that the caller knows a new one.
async fn converge(State(admin): State<Arc<Admin>>) -> Response<Body> {
    let asked = |follower: &FollowerHandle| follower.request_pass("operator");
    admin.start(asked, |followers| followers.begin_pass(None))
}

/// Makes every attached replica that was found different, or this one, take over its source's
/// side. A new pass follows by itself. The answer is like that of `converge`.
async fn repair(State(admin): State<Arc<Admin>>) -> Response<Body> {
    let status = admin.status.borrow().clone();
    let diverged: Vec<NodeId> = status
        .replica_list()
        .into_iter()
        .filter(|replica| matches!(replica.state, NodeState::Diverged | NodeState::Stalled))
        .filter_map(|replica| NodeId::new(replica.node).ok())
        .collect();
    let asked = |follower: &FollowerHandle| follower.request_repair("operator");
    admin.start(asked, |followers| {
        let each = diverged
            .iter()
            .flat_map(|node| followers.begin_repair(Some(node)));
        each.collect()
    })
}

/// Takes the slot of a node that will not come back: `{"node": "n2"}`. From then on the log is
/// not kept for it. 404 when nothing is known of it, 409 while it is connected.
async fn forget(State(admin): State<Arc<Admin>>, body: String) -> Response<Body> {
    let asked = serde_json::from_str::<serde_json::Value>(&body).unwrap_or_default();
    let Ok(node) = NodeId::new(asked["node"].as_str().unwrap_or_default()) else {
        let form = r#"the body must be {"node": "NAME"}, with a node's name"#;
        return told(StatusCode::BAD_REQUEST, form.into());
    };
    let Some(engine) = admin.engine.get() else {
        let closed = "this node has no database open at the moment";
        return told(StatusCode::SERVICE_UNAVAILABLE, closed.into());
    };
    let (followers, name) = (admin.followers.clone(), node.clone());
    let forget = move || slots::forget(&engine, &followers, &name);
    let forgotten = tokio::task::spawn_blocking(forget).await;
    match forgotten.map_err(|error| error.to_string()) {
        Ok(Ok(Forgotten::Yes)) => {
            tracing::warn!(%node, "forgotten: the log is not kept for it any more");
            told(
                StatusCode::OK,
                format!("the log is not kept for {node} any more"),
            )
        }
        Ok(Ok(Forgotten::Unknown)) => {
            told(StatusCode::NOT_FOUND, format!("nothing is known of {node}"))
        }
        Ok(Ok(Forgotten::IsConnected)) => told(
            StatusCode::CONFLICT,
            format!("{node} is connected and would be back at once; stop it first"),
        ),
        Ok(Err(error)) => told(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        Err(error) => told(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn told(code: StatusCode, message: String) -> Response<Body> {
    (code, axum::Json(json!({"message": message}))).into_response()
}

impl Admin {
    fn start(
        &self,
        of_replica: impl FnOnce(&FollowerHandle) -> bool,
        of_primary: impl FnOnce(&Followers) -> Vec<NodeId>,
    ) -> Response<Body> {
        let status = self.status.borrow().clone();
        let follower = self.follower.borrow().clone();
        let started: Vec<String> = match (status.role, &follower) {
            (Role::Replica, Some(follower)) if of_replica(follower) => vec![status.node.clone()],
            (Role::Replica, _) => Vec::new(),
            _ => of_primary(&self.followers)
                .iter()
                .map(ToString::to_string)
                .collect(),
        };
        answer(&status, &started)
    }
}

fn answer(status: &NodeStatus, started: &[String]) -> Response<Body> {
    let nodes: Vec<_> = status
        .replica_list()
        .into_iter()
        .map(|replica| {
            json!({
                "node": replica.node,
                "started": started.contains(&replica.node),
                "passes_before": replica.passes,
            })
        })
        .collect();
    let code = match started.is_empty() {
        true => StatusCode::CONFLICT,
        false => StatusCode::ACCEPTED,
    };
    let body = json!({"role": status.role, "nodes": nodes});
    (code, axum::Json(body)).into_response()
}
