//! The keeper of this node's role: enters it at the start, and watches over it.
//!
//! A role is something the node is inside of. Entering it opens the database and grants what
//! belongs to it: the primary's writer, the follower's stream. Everybody else sees the
//! database through the mount and the address of the primary through a `watch`.
//!
//! While it leads, the keeper looks at each thing that is seen of other nodes
//! ([`crate::meeting`] says what it means) and closes the door for writes when another one
//! leads too. It does not open that door again by itself.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_engine::{Engine, Opening, Store, openings};
use tidegate_replica::follower::{Follower, FollowerConfig, FollowerHandle, SourceAddress};
use tidegate_replica::followers::Followers;
use tidegate_replica::history::{History, Standing};
use tidegate_replica::ids::{BootId, NodeId};
use tidegate_replica::mount::Mount;
use tidegate_replica::settings::Settings;
use tokio::sync::watch;

use crate::blocking::blocking;
use crate::config::{ClusterConfig, RoleSetting};
use crate::daemon::Error;
use crate::duty::{self, LagBounds};
use crate::identity::{self, Identity};
use crate::meeting::{self, Findings, Own, Verdict};
use crate::mounted::EngineSlot;
use crate::peers::Sightings;
use crate::role::{self, Beginning};
use crate::status::{PeerStatus, Reason, Role, State, StatusSender};
use crate::tasks::Tasks;

/// A node that would lead asks its peers for this long at most.
const ASKING_MAX: Duration = Duration::from_secs(3);

/// What the keeper works with.
pub struct Parts {
    /// This node's name.
    pub id: NodeId,
    /// This run of the process.
    pub boot: BootId,
    /// Who else there is, and what this node is told to be.
    pub cluster: ClusterConfig,
    /// Opens and closes the database.
    pub mount: Arc<Mount>,
    /// The open database.
    pub slot: EngineSlot,
    /// Who follows.
    pub followers: Arc<Followers>,
    /// What this node says of itself.
    pub status: StatusSender,
    /// Bounds of replication.
    pub settings: Settings,
    /// Bounds of readiness.
    pub bounds: LagBounds,
    /// What was seen of other nodes.
    pub sightings: watch::Receiver<Sightings>,
    /// Where tasks of a role run.
    pub tasks: Tasks,
}

/// What others need of the keeper.
#[derive(Clone)]
pub struct RoleHandle {
    /// The peer address of the primary, as far as known.
    pub primary: SourceAddress,
    /// The running follower, if there is one.
    pub follower: watch::Receiver<Option<FollowerHandle>>,
}

/// See the module's head.
pub struct RoleKeeper {
    parts: Parts,
    primary: watch::Sender<Option<String>>,
    follower: watch::Sender<Option<FollowerHandle>>,
    duty: Duty,
    /// What stands against leading, until an operator decides.
    verdict: Verdict,
}

/// What the node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Nothing yet.
    None,
    /// Takes writes, or would if nothing stood against it.
    Leading,
    /// Only reads, because something stands against leading.
    Standing,
    /// Follows.
    Following,
}

impl RoleKeeper {
    /// Without a role yet.
    pub fn new(parts: Parts) -> (Self, RoleHandle) {
        let primary = watch::Sender::new(first_source(&parts.cluster));
        let follower = watch::Sender::new(None);
        let handle = RoleHandle {
            primary: primary.subscribe(),
            follower: follower.subscribe(),
        };
        let keeper = Self {
            parts,
            primary,
            follower,
            duty: Duty::None,
            verdict: Verdict::Free,
        };
        (keeper, handle)
    }

    /// Opens the database and enters the role that its history, its peers, or else the
    /// configuration give. Recovery may take long: it runs on threads of its own.
    pub async fn start(&mut self) -> Result<(), Error> {
        let dir = self.parts.mount.options().data_dir.clone();
        self.parts.status.send_modify(|status| {
            status.state = State::Recovering;
            status.detail = format!("opening {}", dir.display());
        });
        let openings = blocking(move || read_history(&dir)).await?;
        let decision = role::decide(self.parts.cluster.role, self.parts.id.as_str(), &openings);
        if let Some(warning) = &decision.warning {
            tracing::warn!(node = %self.parts.id, "{warning}");
        }
        match decision.role {
            RoleSetting::Replica => self.follow(),
            RoleSetting::Primary => self.lead_unless_told(openings.is_empty()).await,
        }
    }

    /// Asks the peers, and leads if nothing speaks against it.
    async fn lead_unless_told(&mut self, is_empty: bool) -> Result<(), Error> {
        let engine = self.open().await?;
        let own = self.own(&engine).await?;
        let findings = self.ask_peers(&own).await;
        if is_empty {
            self.check_name(&own)?;
        }
        match role::settle(is_empty, &findings) {
            Beginning::Lead => self.lead(engine).await,
            Beginning::Follow(why) => {
                tracing::warn!(node = %self.parts.id, "{why}");
                self.note_leader(&findings);
                self.close(engine).await?;
                self.follow()
            }
            Beginning::Stand(verdict) => {
                self.stand(&engine, verdict);
                Ok(())
            }
        }
    }

    /// Keeps the role until the node stops.
    pub async fn run(mut self) -> Result<(), std::convert::Infallible> {
        let stopping = self.parts.tasks.stopping();
        self.look().await;
        loop {
            tokio::select! {
                () = stopping.cancelled() => return Ok(()),
                changed = self.parts.sightings.changed() => match changed {
                    Ok(()) => self.look().await,
                    Err(_) => stopping.cancelled().await,
                },
            }
        }
    }

    /// Looks at what was seen and does what follows from it.
    async fn look(&mut self) {
        // Before this node's own standing is read, so that no peer can be ahead of it.
        let seen = self.parts.sightings.borrow_and_update().clone();
        let engine = self.parts.slot.get();
        let is_open = engine.is_some();
        let own = match engine {
            Some(engine) => self.own(&engine).await,
            // While a snapshot takes its place.
            None => Ok(self.without_data()),
        };
        let own = match own {
            Ok(own) => own,
            Err(error) => return tracing::warn!(%error, "this node's standing cannot be read"),
        };
        let findings = meeting::judge(&own, &seen);
        self.tell_peers(&seen, &findings);
        match self.duty {
            _ if !is_open => {}
            Duty::Following => self.note_leader(&findings),
            Duty::Leading | Duty::Standing => self.object(findings.verdict),
            Duty::None => {}
        }
    }

    /// Closes the door for writes when something stands against leading.
    fn object(&mut self, found: Verdict) {
        if !found.outweighs(&self.verdict) {
            return;
        }
        self.verdict = found;
        let Some(objection) = self.verdict.objection() else {
            return;
        };
        tracing::error!(node = %self.parts.id, "{}; writes are refused", objection.text);
        if let Some(engine) = self.parts.slot.get() {
            engine.fence(&objection.text);
        }
        self.show();
    }

    /// Takes writes.
    async fn lead(&mut self, engine: Arc<Engine>) -> Result<(), Error> {
        let id = self.parts.id.to_string();
        let identity = blocking(move || {
            engine.start_primary(&id, "start")?;
            Identity::read(&engine)
        })
        .await?;
        self.parts.status.send_modify(|status| {
            status.cluster_id = identity.cluster_id;
            status.epoch = identity.epoch;
            status.role = Role::Primary;
            status.primary = Some(status.node.clone());
        });
        let watch = duty::watch_followers(
            self.parts.followers.clone(),
            self.parts.slot.clone(),
            self.parts.status.clone(),
            self.parts.bounds,
            self.parts.tasks.stopping(),
        );
        self.parts.tasks.spawn("followers", watch);
        self.duty = Duty::Leading;
        self.show();
        Ok(())
    }

    /// Only reads: the database is open and takes nothing.
    fn stand(&mut self, engine: &Engine, verdict: Verdict) {
        let identity = Identity::read(engine).ok();
        self.parts.status.send_modify(|status| {
            status.role = Role::Primary;
            if let Some(identity) = identity {
                status.cluster_id = identity.cluster_id;
                status.epoch = identity.epoch;
            }
        });
        self.duty = Duty::Standing;
        self.object(verdict);
    }

    /// Follows whoever leads. The database must be closed: the follower opens it itself.
    fn follow(&mut self) -> Result<(), Error> {
        let alone = self.parts.cluster.peers.is_empty() && self.primary.borrow().is_none();
        if alone {
            return Err(Error::Unsupported(
                "a replica needs a primary to follow: set cluster.primary (--primary \
                 http://host:9070), or cluster.peers"
                    .into(),
            ));
        }
        let config = FollowerConfig {
            node: self.parts.id.clone(),
            boot: self.parts.boot,
            source: self.primary.subscribe(),
            settings: self.parts.settings,
        };
        let (follower, handle) = Follower::new(config, self.parts.mount.clone());
        self.parts
            .status
            .send_modify(|status| status.role = Role::Replica);
        let stopping = self.parts.tasks.stopping();
        let following = async move {
            follower.run(stopping).await;
            Ok::<(), std::convert::Infallible>(())
        };
        self.parts.tasks.spawn("follower", following);
        let watch = duty::watch_follower(
            handle.state.clone(),
            self.primary.subscribe(),
            self.parts.slot.clone(),
            self.parts.status.clone(),
            self.parts.bounds,
            self.parts.tasks.stopping(),
        );
        self.parts.tasks.spawn("following", watch);
        self.follower.send_replace(Some(handle));
        self.duty = Duty::Following;
        Ok(())
    }

    async fn open(&self) -> Result<Arc<Engine>, Error> {
        let mount = self.parts.mount.clone();
        let open = move || {
            let engine = Engine::open(mount.options().clone())?;
            mount.show(engine.clone());
            Ok(engine)
        };
        Ok(blocking(open).await?)
    }

    async fn close(&self, engine: Arc<Engine>) -> Result<(), Error> {
        let mount = self.parts.mount.clone();
        Ok(blocking(move || mount.close(engine)).await?)
    }

    /// Where this node stands.
    async fn own(&self, engine: &Arc<Engine>) -> Result<Own, Error> {
        let own = self.without_data();
        Ok(identity::read_own(own, engine.clone()).await?)
    }

    fn without_data(&self) -> Own {
        Own {
            node: self.parts.id.clone(),
            boot: self.parts.boot,
            standing: Standing {
                cluster: None,
                history: History::default(),
                seq: tidegate_engine::Seq::ZERO,
            },
        }
    }

    /// Waits until every peer has said what it holds, or for three seconds.
    async fn ask_peers(&mut self, own: &Own) -> Findings {
        let seen = &mut self.parts.sightings;
        let enough = |seen: &Sightings| meeting::knows_enough(own, seen);
        if !enough(&seen.borrow()) {
            self.parts.status.send_modify(|status| {
                status.detail = "asking the other nodes before it leads".to_owned();
            });
        }
        let asked = tokio::time::timeout(ASKING_MAX, seen.wait_for(enough));
        let is_late = asked.await.is_err();
        if is_late {
            tracing::warn!("not every peer answered within {ASKING_MAX:?}");
        }
        meeting::judge(own, &seen.borrow())
    }

    /// An empty node that has the name of one with data would be taken for it.
    fn check_name(&self, own: &Own) -> Result<(), Error> {
        let seen = self.parts.sightings.borrow();
        let twin = seen.peers.values().find(|sighting| {
            let peer = sighting.described.as_ref();
            peer.is_some_and(|p| p.node == own.node && p.boot != Some(own.boot))
        });
        match twin {
            None => Ok(()),
            Some(twin) => Err(Error::Unsupported(format!(
                "{} is a node that is called {} already: give this one a node.id of its own",
                twin.url, own.node
            ))),
        }
    }

    /// Follows the node that leads. Without one, whoever was followed before; and by the
    /// address used so far, if it is the same node's.
    fn note_leader(&self, findings: &Findings) {
        let Some(leader) = &findings.leader else {
            return;
        };
        let present = self.primary.borrow().clone().unwrap_or_default();
        let seen = self.parts.sightings.borrow();
        let same = seen
            .peer(&present)
            .and_then(|sighting| sighting.described.as_ref());
        if same.is_some_and(|peer| peer.node == leader.node) {
            return;
        }
        self.primary.send_if_modified(|present| {
            let moved = present.as_deref() != Some(&leader.url);
            if moved {
                tracing::info!(node = %leader.node, url = leader.url, epoch = %leader.epoch, "the primary");
                *present = Some(leader.url.clone());
            }
            moved
        });
    }

    /// State, reason and detail of a node that is or would be the primary; a follower tells its
    /// own.
    fn show(&self) {
        let (state, detail) = match &self.verdict {
            Verdict::Free => (State::Ready, "takes writes"),
            Verdict::Fenced(objection) => (State::Fenced, &*objection.text),
            Verdict::Conflict(objection) | Verdict::RolledBack(objection) => {
                (State::ConfigConflict, &*objection.text)
            }
        };
        self.parts.status.send_modify(|status| {
            if !status.draining {
                status.state = state;
            }
            status.reason = match &self.verdict {
                Verdict::Free => Reason::None,
                _ => Reason::History,
            };
            detail.clone_into(&mut status.detail);
        });
    }

    /// Puts the other nodes into the status, and tells what is wrong with one once.
    fn tell_peers(&self, seen: &Sightings, findings: &Findings) {
        let now = Instant::now();
        let peers: Vec<PeerStatus> = seen
            .peers
            .values()
            .map(|sighting| {
                let problem = findings
                    .problems
                    .iter()
                    .find(|(url, _)| *url == sighting.url);
                let peer = sighting.described.as_ref();
                PeerStatus {
                    node: peer
                        .map(|p| p.node.to_string())
                        .or_else(|| sighting.name.clone()),
                    url: sighting.url.clone(),
                    reachable: sighting.is_reachable(now),
                    role: peer.map(|p| p.role.clone()),
                    state: peer.map(|p| p.state.clone()),
                    epoch: peer.map_or(0, |p| p.history.epoch().get()),
                    head_seq: peer.map_or(0, |p| p.head.get()),
                    problem: problem
                        .map(|(_, text)| text.clone())
                        .or_else(|| sighting.error.clone()),
                }
            })
            .collect();
        self.parts.status.send_if_modified(|status| {
            for (url, problem) in &findings.problems {
                let known = status
                    .peers
                    .iter()
                    .any(|p| p.problem.as_ref() == Some(problem));
                if !known {
                    tracing::error!(url, "{problem}");
                }
            }
            let moved = status.peers != peers;
            status.peers = peers;
            moved
        });
    }
}

/// Whom a replica follows before anything was seen: the configured primary, or else the only
/// other node.
fn first_source(cluster: &ClusterConfig) -> Option<String> {
    let configured = cluster.primary.clone().filter(|url| !url.is_empty());
    configured.or_else(|| match &*cluster.peers {
        [(_, url)] => Some(url.clone()),
        _ => None,
    })
}

/// The openings in a data directory, before anything is decided.
fn read_history(dir: &Path) -> Result<Vec<Opening>, tidegate_engine::Error> {
    let store = Store::open(dir)?;
    let mut connection = store.reader()?;
    let history = openings::openings(&mut connection)?;
    connection.close()?;
    Ok(history)
}
