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

use crate::status::{Role, StatusReceiver};

/// What stands behind the calls.
pub struct Admin {
    /// On a primary: who follows.
    pub followers: Arc<Followers>,
    /// On a replica: its follower.
    pub follower: Option<FollowerHandle>,
    /// Who this node is.
    pub status: StatusReceiver,
}

/// The routes.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/admin/v1/converge", post(converge))
        .with_state(admin)
}

/// Starts a convergence pass of every attached replica, or of this one. The answer names
/// them with the number of passes that had ended before, so that the caller knows a new one.
async fn converge(State(admin): State<Arc<Admin>>) -> Response<Body> {
    let status = admin.status.borrow().clone();
    let started: Vec<String> = match (status.role, &admin.follower) {
        (Role::Replica, Some(follower)) if follower.request_pass("operator") => {
            vec![status.node.clone()]
        }
        (Role::Replica, _) => Vec::new(),
        _ => admin
            .followers
            .begin_pass(None)
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
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
