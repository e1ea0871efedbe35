//! How long to wait before dialling again.
//!
//! The wait doubles up to a cap and is spread at random over its upper half, so that the
//! followers of a source that restarted do not all return in one moment. A connection that
//! held for a while starts the count anew; one that ended at once does not, so that a source
//! which accepts and then fails is not dialled hot.
//!
//! This is the only place that decides about waiting for a peer. Nothing retries inside it.

use std::time::Duration;

/// Bounds of the wait.
#[derive(Debug, Clone, Copy)]
pub struct BackoffLimits {
    /// First wait.
    pub first: Duration,
    /// No wait is longer.
    pub cap: Duration,
    /// A connection that lasted this long starts the count anew.
    pub settled: Duration,
}

/// Counts attempts.
#[derive(Debug, Clone)]
pub struct Backoff {
    limits: BackoffLimits,
    attempts: u32,
}

impl Default for BackoffLimits {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            cap: Duration::from_secs(5),
            settled: Duration::from_secs(10),
        }
    }
}

impl Backoff {
    /// Before the first attempt.
    pub fn new(limits: BackoffLimits) -> Self {
        Self {
            limits,
            attempts: 0,
        }
    }

    /// An attempt ended after it had `lasted` that long (zero if it never connected). Gives
    /// the time to wait; `random` is any number, fresh each time.
    pub fn after(&mut self, lasted: Duration, random: u64) -> Duration {
        if lasted >= self.limits.settled {
            self.attempts = 0;
        }
        let full = self
            .limits
            .first
            .saturating_mul(1 << self.attempts.min(16))
            .min(self.limits.cap);
        self.attempts = self.attempts.saturating_add(1);
        let half = full / 2;
        half + half.mul_f64(random as f64 / u64::MAX as f64)
    }

    /// Something changed (a new address, an operator's word): the next wait is the first.
    pub fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BackoffLimits = BackoffLimits {
        first: Duration::from_millis(100),
        cap: Duration::from_secs(5),
        settled: Duration::from_secs(10),
    };

    fn waits(backoff: &mut Backoff, random: u64, count: usize) -> Vec<u64> {
        (0..count)
            .map(|_| backoff.after(Duration::ZERO, random).as_millis() as u64)
            .collect()
    }

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_stays_in_its_upper_half() {
        let longest = waits(&mut Backoff::new(LIMITS), u64::MAX, 9);
        assert_eq!(
            longest,
            [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]
        );
        let shortest = waits(&mut Backoff::new(LIMITS), 0, 9);
        assert_eq!(
            shortest,
            [50, 100, 200, 400, 800, 1_600, 2_500, 2_500, 2_500]
        );
    }

    #[test]
    fn only_a_connection_that_held_starts_the_count_anew() {
        let mut backoff = Backoff::new(LIMITS);
        waits(&mut backoff, 0, 4);
        assert_eq!(
            backoff.after(Duration::from_secs(9), 0),
            Duration::from_millis(800)
        );
        assert_eq!(
            backoff.after(Duration::from_secs(10), 0),
            Duration::from_millis(50)
        );
    }

    #[test]
    fn a_great_many_attempts_do_not_overflow() {
        let mut backoff = Backoff::new(LIMITS);
        backoff.attempts = u32::MAX;
        assert_eq!(
            backoff.after(Duration::ZERO, u64::MAX),
            Duration::from_secs(5)
        );
    }
}
