//! How far behind a follower is, in changes and in seconds.
//!
//! Seconds are measured on the source's clock alone: it says when each head was committed and
//! what time it is now, so the clocks of two machines are never subtracted. The trail
//! remembers some of the heads with their times; the lag is the age of the oldest change that
//! the follower lacks. It grows while a follower is away, is zero only for one that lacks
//! nothing, and is never negative, whatever a clock does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tidegate_engine::Seq;

/// Heads remembered. When there are more, every second one of the older half is forgotten,
/// which makes a lag of that age look longer by at most the gap, never shorter.
const TRAIL_MAX: usize = 1_024;

/// Heads of a source with the times of their commits, oldest first.
#[derive(Debug, Clone, Default)]
pub struct HeadTrail {
    heads: VecDeque<(Seq, u64)>,
}

/// Since when a follower has been behind, as it knows itself.
///
/// The trail knows the commits it has seen. What was committed while there was no stream it
/// has not seen, and a follower that returns after ten minutes must not look as if it lacked
/// only the newest commit: until it has reached the head that it found, it has been behind
/// since it was last level.
#[derive(Debug, Clone, Copy)]
pub struct LevelClock {
    level_at: Instant,
    goal: Seq,
}

impl LevelClock {
    /// Not level before `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            level_at: now,
            goal: Seq::ZERO,
        }
    }

    /// A stream began, and the source was at `head`.
    pub fn began(&mut self, head: Seq) {
        self.goal = head;
    }

    /// Nothing was lacking when the source was heard at `now`.
    pub fn level(&mut self, now: Instant) {
        self.level_at = self.level_at.max(now);
    }

    /// Since when something after `applied` has been lacking, if the trail says `lag_ms`.
    pub fn behind_since(
        &self,
        applied: Seq,
        head: Seq,
        lag_ms: u64,
        now: Instant,
    ) -> Option<Instant> {
        if applied >= head {
            None
        } else if applied < self.goal {
            Some(self.level_at)
        } else {
            let since = now.checked_sub(Duration::from_millis(lag_ms));
            Some(since.unwrap_or(self.level_at))
        }
    }
}

impl HeadTrail {
    /// The head was `seq` when the source's clock said `committed_ms`. A head that is not
    /// newer than the newest known is ignored.
    pub fn note(&mut self, seq: Seq, committed_ms: u64) {
        if self.heads.back().is_some_and(|(newest, _)| *newest >= seq) {
            return;
        }
        self.heads.push_back((seq, committed_ms));
        if self.heads.len() > TRAIL_MAX {
            self.thin();
        }
    }

    /// Forgets heads that every follower of interest has applied.
    pub fn forget(&mut self, applied: Seq) {
        while self.heads.len() > 1 && self.heads[0].0 <= applied {
            self.heads.pop_front();
        }
    }

    /// The newest head noted.
    pub fn head(&self) -> Option<Seq> {
        self.heads.back().map(|(seq, _)| *seq)
    }

    /// Milliseconds since the oldest change after `applied` was committed; 0 if there is none.
    pub fn lag_ms(&self, applied: Seq, now_ms: u64) -> u64 {
        let lacking = self.heads.partition_point(|(seq, _)| *seq <= applied);
        match self.heads.get(lacking) {
            Some((_, committed_ms)) => now_ms.saturating_sub(*committed_ms),
            None => 0,
        }
    }

    /// Commits after `applied`, as far as they were seen one by one.
    pub fn commits_after(&self, applied: Seq) -> u64 {
        let lacking = self.heads.partition_point(|(seq, _)| *seq <= applied);
        (self.heads.len() - lacking) as u64
    }

    /// Keeps the first of each pair in the older half: of two neighbours the older time stays
    /// with the *newer* seq, so that no change ever looks younger than it is.
    fn thin(&mut self) {
        let half = self.heads.len() / 2;
        let mut thinned = VecDeque::with_capacity(TRAIL_MAX);
        let mut index = 0;
        while index + 1 < half {
            thinned.push_back((self.heads[index + 1].0, self.heads[index].1));
            index += 2;
        }
        thinned.extend(self.heads.range(index..));
        self.heads = thinned;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trail(heads: &[(u64, u64)]) -> HeadTrail {
        let mut trail = HeadTrail::default();
        heads
            .iter()
            .for_each(|&(seq, ms)| trail.note(Seq::new(seq), ms));
        trail
    }

    #[test]
    fn the_lag_is_the_age_of_the_oldest_change_that_is_lacking() {
        let trail = trail(&[(10, 1_000), (20, 2_000), (30, 3_000)]);
        let lag = |applied| trail.lag_ms(Seq::new(applied), 3_500);
        assert_eq!(lag(5), 2_500);
        assert_eq!(lag(10), 1_500);
        assert_eq!(lag(19), 1_500);
        assert_eq!(lag(20), 500);
        assert_eq!(lag(30), 0);
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_negative_lag() {
        let trail = trail(&[(10, 5_000)]);
        assert_eq!(trail.lag_ms(Seq::ZERO, 1_000), 0);
    }

    #[test]
    fn a_long_trail_is_thinned_and_never_shows_less_than_the_true_lag() {
        let heads: Vec<_> = (1..=10_000).map(|i| (i, i * 10)).collect();
        let trail = trail(&heads);
        assert!(trail.heads.len() <= TRAIL_MAX + 1);
        for applied in 0..10_000 {
            let lag = trail.lag_ms(Seq::new(applied), 200_000);
            assert!(lag >= 200_000 - (applied + 1) * 10, "{applied}: {lag}");
        }
        assert_eq!(trail.head(), Some(Seq::new(10_000)));
    }

    #[test]
    fn a_follower_that_returns_has_been_behind_since_it_was_level() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clock = LevelClock::new(start);
        clock.began(Seq::new(10));
        clock.level(at(5));
        // Away from then on; it finds the source at 90, which was committed just now.
        clock.began(Seq::new(90));
        let behind = |applied| clock.behind_since(Seq::new(applied), Seq::new(95), 20, at(605));
        assert_eq!(behind(10), Some(at(5)));
        assert_eq!(behind(89), Some(at(5)));
        assert_eq!(behind(90), at(605).checked_sub(Duration::from_millis(20)));
        assert_eq!(behind(95), None);
    }

    #[test]
    fn forgetting_keeps_the_newest() {
        let mut trail = trail(&[(10, 1_000), (20, 2_000)]);
        trail.forget(Seq::new(20));
        assert_eq!(trail.head(), Some(Seq::new(20)));
    }
}
