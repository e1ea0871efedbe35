//! Streams between two HTTP requests, found again by their batons.
//!
//! A request takes its stream out and puts it back under a fresh ticket, so a baton is good
//! once and a stream serves one request at a time. A request that dies half-way drops its
//! stream, which rolls its transaction back.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::baton::{Issuer, Reading, Ticket};
use super::error::WireError;
use super::stream::Stream;

/// Tickets of expired streams that are remembered, to tell their clients what happened.
const EXPIRED_MAX: usize = 16_384;

/// The streams of one node.
pub struct Streams {
    issuer: Issuer,
    max: usize,
    idle: Duration,
    shelf: Mutex<Shelf>,
}

/// A place for a stream whose baton was given out before its request has ended.
pub struct Reserved {
    ticket: Ticket,
}

#[derive(Default)]
struct Shelf {
    slots: HashMap<Ticket, Slot>,
    expired: HashSet<Ticket>,
    expired_order: VecDeque<Ticket>,
}

enum Slot {
    Idle { stream: Box<Stream>, since: Instant },
    Busy,
}

impl Streams {
    /// None yet.
    pub fn new(node: &str, max: usize, idle: Duration) -> Self {
        Self {
            issuer: Issuer::new(node),
            max,
            idle,
            shelf: Mutex::default(),
        }
    }

    /// How long a stream may be idle.
    pub fn idle(&self) -> Duration {
        self.idle
    }

    /// Takes the stream that a baton names.
    pub fn take(&self, baton: &str, epoch: u64) -> Result<Stream, WireError> {
        match self.issuer.read(baton, epoch) {
            Reading::Ours(ticket) => self.take_ticket(ticket),
            Reading::Lost => Err(WireError::new(
                "STREAM_LOST",
                "the stream is lost: this node was restarted or promoted since; an open \
                 transaction was rolled back and none of its statements took effect. Open a new \
                 stream and run the transaction again",
            )),
            Reading::Elsewhere => Err(WireError::new(
                "STREAM_NOT_FOUND",
                "this baton belongs to another node: send all requests of a stream to the node \
                 that opened it (see `base_url`)",
            )),
            Reading::Garbage => Err(not_found()),
        }
    }

    /// Keeps a stream for its next request; gives its baton.
    pub fn put(&self, stream: Stream, epoch: u64) -> Result<String, WireError> {
        let (reserved, baton) = self.reserve(epoch)?;
        self.fill(reserved, stream);
        Ok(baton)
    }

    /// Gives a baton before the request has ended.
    pub fn reserve(&self, epoch: u64) -> Result<(Reserved, String), WireError> {
        let (ticket, baton) = self.issuer.issue(epoch);
        // What is evicted is dropped after the lock is given back: it rolls back.
        let mut evicted = None;
        let mut shelf = self.lock();
        if shelf.slots.len() >= self.max {
            evicted = shelf.evict();
            if evicted.is_none() {
                return Err(WireError::new(
                    "TIDEGATE_OVERLOADED",
                    format!(
                        "{} streams are open and none can be closed for this one",
                        self.max
                    ),
                ));
            }
        }
        shelf.slots.insert(ticket, Slot::Busy);
        drop(shelf);
        drop(evicted);
        Ok((Reserved { ticket }, baton))
    }

    /// Puts the stream where its baton finds it.
    pub fn fill(&self, reserved: Reserved, stream: Stream) {
        let slot = Slot::Idle {
            stream: Box::new(stream),
            since: Instant::now(),
        };
        self.lock().slots.insert(reserved.ticket, slot);
    }

    /// The request died: its baton finds nothing.
    pub fn abandon(&self, reserved: Reserved) {
        self.lock().slots.remove(&reserved.ticket);
    }

    /// Closes streams that have been idle for too long. Call it once a second.
    pub fn expire(&self, now: Instant) -> usize {
        let mut shelf = self.lock();
        let late = |slot: &Slot| match slot {
            Slot::Idle { since, .. } => now.saturating_duration_since(*since) > self.idle,
            Slot::Busy => false,
        };
        let tickets: Vec<Ticket> = shelf
            .slots
            .iter()
            .filter(|(_, slot)| late(slot))
            .map(|(ticket, _)| *ticket)
            .collect();
        let gone: Vec<Option<Slot>> = tickets.iter().map(|t| shelf.expire(*t)).collect();
        drop(shelf);
        gone.len()
    }

    /// Closes all of them.
    pub fn clear(&self) {
        let slots = std::mem::take(&mut self.lock().slots);
        drop(slots);
    }

    /// Streams that are kept or reserved.
    pub fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_ticket(&self, ticket: Ticket) -> Result<Stream, WireError> {
        let mut shelf = self.lock();
        match shelf.slots.remove(&ticket) {
            Some(Slot::Idle { stream, since }) if since.elapsed() <= self.idle => Ok(*stream),
            Some(slot @ Slot::Idle { .. }) => {
                shelf.slots.insert(ticket, slot);
                let gone = shelf.expire(ticket);
                drop(shelf);
                drop(gone);
                Err(self.expired())
            }
            Some(Slot::Busy) => {
                shelf.slots.insert(ticket, Slot::Busy);
                Err(WireError::new(
                    "STREAM_NOT_FOUND",
                    "another request is running on this stream: wait for its answer",
                ))
            }
            None if shelf.expired.contains(&ticket) => Err(self.expired()),
            None => Err(not_found()),
        }
    }

    fn expired(&self) -> WireError {
        let message = format!(
            "the stream expired: it was idle for more than {:?}, or made room for others; an open \
             transaction was rolled back and none of its statements took effect. Open a new stream \
             and run the transaction again",
            self.idle
        );
        WireError::new("STREAM_EXPIRED", message)
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Takes out the longest idle stream that nobody would miss.
    fn evict(&mut self) -> Option<Slot> {
        let candidates = self.slots.iter().filter_map(|(ticket, slot)| match slot {
            Slot::Idle { stream, since } if stream.is_stateless() => Some((*since, *ticket)),
            _ => None,
        });
        let (_, ticket) = candidates.min()?;
        self.expire(ticket)
    }

    fn expire(&mut self, ticket: Ticket) -> Option<Slot> {
        if self.expired_order.len() >= EXPIRED_MAX
            && let Some(oldest) = self.expired_order.pop_front()
        {
            self.expired.remove(&oldest);
        }
        self.expired.insert(ticket);
        self.expired_order.push_back(ticket);
        self.slots.remove(&ticket)
    }
}

fn not_found() -> WireError {
    WireError::new(
        "STREAM_NOT_FOUND",
        "no such stream: a baton is good for one request, and only the newest one",
    )
}
