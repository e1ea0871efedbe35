//! Accepting connections and serving HTTP/1 on them.
//!
//! Every socket sets TCP_NODELAY, and a reply leaves in one write: a reply in two writes
//! waits for the delayed acknowledgement of the first, 40 ms for each query.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::tasks::Tasks;

/// Largest head of a request, and most header fields.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADER_FIELDS_MAX: usize = 100;
/// Pause after a failed accept: without it, running out of files would spin a CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections the kernel may hold before they are accepted.
const BACKLOG: i32 = 1_024;

/// Limits of one listener.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections served at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// Time from one request to the head of the next.
    pub keep_alive: Duration,
}

/// Binds an address, so that a port in use is told before anything starts.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Serves until shutdown begins; open connections then finish their request.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    tasks: Tasks,
) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let stopping = tasks.stopping();
    loop {
        let accepted = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = stopping.cancelled() => return Ok(()),
        };
        match accepted {
            Ok((socket, _)) => {
                let connection = connection(socket, router.clone(), limits, tasks.clone());
                tasks.spawn_short(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(socket: TcpStream, router: Router, limits: Limits, tasks: Tasks) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.keep_alive)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADER_FIELDS_MAX)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let stopping = tasks.stopping();
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
