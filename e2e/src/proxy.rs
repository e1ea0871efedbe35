//! A TCP proxy on loopback that is a bad network: slow, late, cut, or cut in one direction.
//!
//! The kernel of a test machine often has no `netem`, and a proxy works without privileges.
//! It forwards bytes and knows nothing of what they mean. Conditions can change while
//! connections are open and take effect at the next piece that is forwarded.
//!
//! *Silent* cuts swallow: connections stay open and nothing arrives, as when a cable is
//! pulled. A *loud* cut ends every connection and refuses new ones, as when a process dies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Largest piece forwarded at once. Small, so that a slow link is slow evenly.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// How long a piece may take on a rate-limited link; bounds the piece, not the rate.
const PIECE_MS: u64 = 100;

/// What the network does to traffic. The default forwards everything at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conditions {
    /// Bytes per second and direction, over each connection; `None` is unlimited.
    pub bytes_per_second: Option<u64>,
    /// Added to each piece in each direction.
    pub delay: Duration,
    /// Swallow what clients send.
    pub swallow_requests: bool,
    /// Swallow what the server sends.
    pub swallow_replies: bool,
    /// End all connections and refuse new ones.
    pub refuse: bool,
}

/// A running proxy; stops when dropped.
pub struct Proxy {
    address: SocketAddr,
    conditions: watch::Sender<Conditions>,
    counters: Arc<Counters>,
    acceptor: JoinHandle<()>,
}

/// What went through.
#[derive(Debug, Default)]
struct Counters {
    connections: AtomicU64,
    request_bytes: AtomicU64,
    reply_bytes: AtomicU64,
}

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Reply,
}

impl Proxy {
    /// Starts a proxy in front of a port of this machine.
    pub async fn start(target_port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (conditions, watched) = watch::channel(Conditions::default());
        let counters = Arc::new(Counters::default());
        let target = SocketAddr::from(([127, 0, 0, 1], target_port));
        let acceptor = tokio::spawn(accept(listener, target, watched, counters.clone()));
        Ok(Self {
            address,
            conditions,
            counters,
            acceptor,
        })
    }

    /// The port to dial.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The address to dial, as peers are configured.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Changes the network.
    pub fn set(&self, conditions: Conditions) {
        self.conditions.send_replace(conditions);
    }

    /// Forwards everything again.
    pub fn heal(&self) {
        self.set(Conditions::default());
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.counters.connections.load(Ordering::Relaxed)
    }

    /// Bytes forwarded so far: from clients, from the server.
    pub fn bytes(&self) -> (u64, u64) {
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        (
            load(&self.counters.request_bytes),
            load(&self.counters.reply_bytes),
        )
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        // Connections end too: they watch for the sender's end.
    }
}

impl Conditions {
    /// A link of this rate.
    pub fn slow(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: Some(bytes_per_second),
            ..Self::default()
        }
    }

    /// Nothing arrives anywhere, and nobody is told.
    pub fn silent() -> Self {
        Self {
            swallow_requests: true,
            swallow_replies: true,
            ..Self::default()
        }
    }

    /// Connections end and are refused.
    pub fn loud() -> Self {
        Self {
            refuse: true,
            ..Self::default()
        }
    }

    fn swallows(&self, direction: Direction) -> bool {
        match direction {
            Direction::Request => self.swallow_requests,
            Direction::Reply => self.swallow_replies,
        }
    }

    fn piece_bytes(&self) -> usize {
        let fit = self.bytes_per_second.map_or(u64::MAX, |rate| {
            (rate.saturating_mul(PIECE_MS) / 1_000).max(1)
        });
        usize::try_from(fit).map_or(PIECE_BYTES_MAX, |fit| fit.min(PIECE_BYTES_MAX))
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    conditions: watch::Receiver<Conditions>,
    counters: Arc<Counters>,
) {
    while let Ok((client, _)) = listener.accept().await {
        if conditions.borrow().refuse {
            continue; // dropped: the client sees the connection end
        }
        counters.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(serve(client, target, conditions.clone(), counters.clone()));
    }
}

async fn serve(
    client: TcpStream,
    target: SocketAddr,
    conditions: watch::Receiver<Conditions>,
    counters: Arc<Counters>,
) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let mut ending = conditions.clone();
    tokio::select! {
        () = async {
            tokio::join!(
                forward(client_read, server_write, Direction::Request, conditions.clone(), &counters),
                forward(server_read, client_write, Direction::Reply, conditions.clone(), &counters),
            );
        } => {}
        _ = ending.wait_for(|c| c.refuse) => {}
    }
}

/// Copies one direction until either end closes.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    direction: Direction,
    conditions: watch::Receiver<Conditions>,
    counters: &Counters,
) {
    let counter = match direction {
        Direction::Request => &counters.request_bytes,
        Direction::Reply => &counters.reply_bytes,
    };
    let mut buffer = vec![0; PIECE_BYTES_MAX];
    let mut free_at = Instant::now();
    loop {
        let room = conditions.borrow().piece_bytes();
        let Ok(len @ 1..) = from.read(&mut buffer[..room]).await else {
            break;
        };
        let now = *conditions.borrow();
        if now.swallows(direction) {
            continue;
        }
        if let Some(rate) = now.bytes_per_second {
            let cost = Duration::from_secs_f64(len as f64 / rate.max(1) as f64);
            free_at = free_at.max(Instant::now()) + cost;
            tokio::time::sleep_until(free_at).await;
        }
        if !now.delay.is_zero() {
            tokio::time::sleep(now.delay).await;
        }
        if to.write_all(&buffer[..len]).await.is_err() {
            break;
        }
        counter.fetch_add(len as u64, Ordering::Relaxed);
    }
    to.shutdown().await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Echoes what it reads.
    async fn echo() -> Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await
                });
            }
        });
        Ok(port)
    }

    async fn dial(proxy: &Proxy) -> Result<TcpStream> {
        Ok(TcpStream::connect(("127.0.0.1", proxy.port())).await?)
    }

    async fn round_trip(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
        let mut back = vec![0; bytes.len()];
        let (mut read, mut write) = stream.split();
        let (sent, received) = tokio::join!(write.write_all(bytes), read.read_exact(&mut back));
        sent?;
        received?;
        assert_eq!(back, bytes);
        Ok(())
    }

    #[tokio::test]
    async fn a_good_network_forwards_both_ways() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        let mut stream = dial(&proxy).await?;
        round_trip(&mut stream, &vec![7; 200_000]).await?;
        assert_eq!(proxy.connections(), 1);
        assert_eq!(proxy.bytes(), (200_000, 200_000));
        Ok(())
    }

    #[tokio::test]
    async fn a_slow_network_keeps_to_its_rate() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        proxy.set(Conditions::slow(100_000));
        let mut stream = dial(&proxy).await?;
        let start = Instant::now();
        round_trip(&mut stream, &vec![1; 50_000]).await?;
        let taken = start.elapsed();
        assert!(taken >= Duration::from_millis(450), "{taken:?}");
        assert!(taken < Duration::from_secs(5), "{taken:?}");
        Ok(())
    }

    #[tokio::test]
    async fn a_delay_is_added_in_both_directions() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        proxy.set(Conditions {
            delay: Duration::from_millis(30),
            ..Conditions::default()
        });
        let mut stream = dial(&proxy).await?;
        let start = Instant::now();
        round_trip(&mut stream, b"late").await?;
        assert!(start.elapsed() >= Duration::from_millis(60));
        Ok(())
    }

    #[tokio::test]
    async fn a_silent_cut_swallows_and_heals() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        let mut stream = dial(&proxy).await?;
        round_trip(&mut stream, b"before").await?;
        proxy.set(Conditions::silent());
        stream.write_all(b"lost").await?;
        let mut one = [0; 1];
        let nothing = tokio::time::timeout(Duration::from_millis(100), stream.read(&mut one)).await;
        assert!(nothing.is_err(), "a swallowed byte came through");
        proxy.heal();
        round_trip(&mut stream, b"after").await
    }

    #[tokio::test]
    async fn a_one_way_cut_still_delivers_requests() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        let mut stream = dial(&proxy).await?;
        proxy.set(Conditions {
            swallow_replies: true,
            ..Conditions::default()
        });
        stream.write_all(b"heard, not answered").await?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while proxy.bytes().0 < 19 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(proxy.bytes(), (19, 0));
        Ok(())
    }

    #[tokio::test]
    async fn a_loud_cut_ends_connections_and_refuses_new_ones() -> Result<()> {
        let proxy = Proxy::start(echo().await?).await?;
        let mut stream = dial(&proxy).await?;
        round_trip(&mut stream, b"before").await?;
        proxy.set(Conditions::loud());
        let mut one = [0; 1];
        assert!(matches!(stream.read(&mut one).await, Ok(0) | Err(_)));
        let mut refused = dial(&proxy).await?;
        assert!(matches!(refused.read(&mut one).await, Ok(0) | Err(_)));
        proxy.heal();
        round_trip(&mut dial(&proxy).await?, b"again").await
    }
}
