//! A bounded queue in arrival order.
//!
//! Bounded in entries and in bytes. A full queue refuses at once, so that a client hears of
//! it while its answer is still of use; nothing ever waits for room.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why an entry was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full.
    Full,
    /// The queue is closed for good.
    Closed,
}

/// What a wait for an entry ended with.
pub(crate) enum Popped<T> {
    /// The oldest entry.
    Entry(T),
    /// None came in time.
    TimedOut,
    /// The queue is closed and empty.
    Closed,
}

/// See the module's head.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
    entries_max: usize,
    bytes_max: usize,
}

struct State<T> {
    entries: VecDeque<(T, usize)>,
    bytes: usize,
    closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue with its bounds.
    pub(crate) fn new(entries_max: usize, bytes_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                entries: VecDeque::new(),
                bytes: 0,
                closed: false,
            }),
            arrived: Condvar::new(),
            entries_max,
            bytes_max,
        }
    }

    /// Adds an entry. A single entry larger than the bound in bytes passes when the queue is
    /// empty, so that it can be refused, or run, by whoever knows what it is.
    pub(crate) fn push(&self, entry: T, bytes: usize) -> Result<(), (T, Refused)> {
        let mut state = self.lock();
        if state.closed {
            return Err((entry, Refused::Closed));
        }
        let too_many = state.entries.len() >= self.entries_max;
        let too_large = !state.entries.is_empty() && state.bytes + bytes > self.bytes_max;
        if too_many || too_large {
            return Err((entry, Refused::Full));
        }
        state.bytes += bytes;
        state.entries.push_back((entry, bytes));
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes the oldest entry; waits for one at most `limit`.
    pub(crate) fn pop(&self, limit: Duration) -> Popped<T> {
        let deadline = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            if let Some(entry) = state.take_front() {
                return Popped::Entry(entry);
            }
            if state.closed {
                return Popped::Closed;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Popped::TimedOut;
            }
            let waited = self.arrived.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes entries from the front for as long as `wanted` says so, without waiting.
    /// `wanted` sees each entry and its bytes.
    pub(crate) fn take_while(&self, mut wanted: impl FnMut(&T, usize) -> bool) -> Vec<T> {
        let mut state = self.lock();
        let mut taken = Vec::new();
        while let Some((entry, bytes)) = state.entries.front() {
            if !wanted(entry, *bytes) {
                break;
            }
            taken.extend(state.take_front());
        }
        taken
    }

    /// Refuses new entries from now on; those that wait are still taken.
    pub(crate) fn finish(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Entries waiting.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn take_front(&mut self) -> Option<T> {
        let (entry, bytes) = self.entries.pop_front()?;
        self.bytes -= bytes;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_at_once() {
        let queue = Queue::new(2, 100);
        queue.push(1, 60).unwrap();
        assert_eq!(queue.push(2, 60).unwrap_err().1, Refused::Full);
        queue.push(2, 40).unwrap();
        assert_eq!(queue.push(3, 0).unwrap_err().1, Refused::Full);
        assert!(matches!(queue.pop(Duration::ZERO), Popped::Entry(1)));
        assert_eq!(queue.push(4, 500).unwrap_err().1, Refused::Full);
    }

    #[test]
    fn a_finished_queue_is_emptied_first() {
        let queue = Queue::new(8, 100);
        queue.push('a', 1).unwrap();
        queue.finish();
        assert_eq!(queue.push('b', 1).unwrap_err().1, Refused::Closed);
        assert!(matches!(queue.pop(Duration::ZERO), Popped::Entry('a')));
        assert!(matches!(queue.pop(Duration::ZERO), Popped::Closed));
    }

    #[test]
    fn entries_are_taken_in_order_until_one_is_not_wanted() {
        let queue = Queue::new(8, 100);
        for n in 1..6 {
            queue.push(n, n).unwrap();
        }
        assert_eq!(queue.take_while(|n, _| *n < 4), vec![1, 2, 3]);
        assert_eq!(queue.len(), 2);
    }
}
