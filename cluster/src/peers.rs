//! The peer watch: asks every other node what it is, again and again.
//!
//! Every node dials all of its peers, a primary too, because that is how two primaries meet.
//! What was seen is one value in a `watch`; what it means is decided in [`crate::meeting`].
//! Each question is a dial of its own, so a peer that moved is found under its name, and each
//! peer has its own back-off, so one that is away is not dialled hot and holds up nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_replica::backoff::Backoff;
use tidegate_replica::dial;
use tidegate_replica::service::Met;
use tidegate_replica::settings::Settings;
use tidegate_replica::wire::Description;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A peer that answered is asked again after this time.
const PERIOD: Duration = Duration::from_secs(1);

/// Everything seen of other nodes.
#[derive(Debug, Clone, Default)]
pub struct Sightings {
    /// By address.
    pub peers: BTreeMap<String, Sighting>,
    /// A follower that came to this node and was turned away for its history.
    pub met: Option<Met>,
}

/// What is known of one peer.
#[derive(Debug, Clone)]
pub struct Sighting {
    /// Its address.
    pub url: String,
    /// Its name in the configuration; `None` for an address without one.
    pub name: Option<String>,
    /// What it last said of itself. Kept while it is silent.
    pub described: Option<Arc<Description>>,
    /// When it said that.
    pub heard: Option<Instant>,
    /// Why it was not reached at the last try; `None` after an answer, or before the first try.
    pub error: Option<String>,
}

impl Sighting {
    fn new(url: String, name: Option<String>) -> Self {
        Self {
            url,
            name,
            described: None,
            heard: None,
            error: None,
        }
    }

    /// It answered at the last try, and not long ago.
    pub fn is_reachable(&self, now: Instant) -> bool {
        /// A dead machine answers nothing, and dialling it takes its time.
        const AGE_MAX: Duration = Duration::from_secs(8);
        let fresh = |heard: Instant| now.saturating_duration_since(heard) <= AGE_MAX;
        self.error.is_none() && self.heard.is_some_and(fresh)
    }

    /// It has said what its database holds, or that it has none.
    pub fn is_known(&self) -> bool {
        self.described.as_ref().is_some_and(|peer| peer.is_open)
    }
}

impl Sightings {
    /// Before anybody was asked: the peers of the configuration, and the configured primary if
    /// it is none of them.
    pub fn of(peers: &[(String, String)], primary: Option<&str>) -> Self {
        let named = peers
            .iter()
            .map(|(name, url)| (url.clone(), Some(name.clone())));
        let mut peers: BTreeMap<_, _> = named
            .map(|(url, name)| (url.clone(), Sighting::new(url, name)))
            .collect();
        if let Some(url) = primary.filter(|url| !url.is_empty()) {
            peers
                .entry(url.to_owned())
                .or_insert_with(|| Sighting::new(url.to_owned(), None));
        }
        Self { peers, met: None }
    }

    /// The peer of this address.
    pub fn peer(&self, url: &str) -> Option<&Sighting> {
        self.peers.get(url)
    }
}

/// Asks one peer until the node stops.
pub async fn watch_peer(
    url: String,
    asking: String,
    settings: Settings,
    sightings: watch::Sender<Sightings>,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut backoff = Backoff::new(settings.backoff);
    let mut reached = false;
    loop {
        let answer = tokio::select! {
            answer = dial::describe(&url, &asking, &settings) => answer,
            () = stopping.cancelled() => return Ok(()),
        };
        if answer.is_ok() != reached {
            reached = answer.is_ok();
            match &answer {
                Ok(peer) => {
                    tracing::info!(url, node = %peer.node, role = peer.role, "a peer answers")
                }
                Err(error) => tracing::info!(url, %error, "a peer does not answer"),
            }
        }
        let wait = match answer {
            Ok(peer) => {
                note(&sightings, &url, |sighting| {
                    sighting.described = Some(Arc::new(peer));
                    sighting.heard = Some(Instant::now());
                    sighting.error = None;
                });
                backoff.reset();
                PERIOD
            }
            Err(error) => {
                note(&sightings, &url, |sighting| {
                    sighting.error = Some(error.to_string())
                });
                backoff.after(Duration::ZERO, getrandom::u64().unwrap_or_default())
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stopping.cancelled() => return Ok(()),
        }
    }
}

/// Passes on what the peer listener learns from followers that it turned away.
pub async fn watch_met(
    mut met: watch::Receiver<Option<Met>>,
    sightings: watch::Sender<Sightings>,
    stopping: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    loop {
        tokio::select! {
            changed = met.changed() => if changed.is_err() { stopping.cancelled().await },
            () = stopping.cancelled() => return Ok(()),
        }
        let met = met.borrow_and_update().clone();
        sightings.send_modify(|seen| seen.met = met);
    }
}

fn note(sightings: &watch::Sender<Sightings>, url: &str, change: impl FnOnce(&mut Sighting)) {
    sightings.send_modify(|seen| {
        let sighting = seen.peers.get_mut(url);
        change(sighting.expect("peers do not change while the node runs"));
    });
}
