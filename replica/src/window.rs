//! How much may be under way to a follower: batches sent and not yet applied.
//!
//! More than one, so that reading, sending and applying overlap; few, so that a slow follower
//! costs the source nothing. While the window is full the source reads nothing for that
//! follower, and the changes that come in meanwhile become one larger batch in which a key
//! that changed often is shipped once.
//!
//! A batch larger than the whole window goes out alone.

use std::collections::VecDeque;

use tidegate_engine::Seq;

/// Bounds of the window.
#[derive(Debug, Clone, Copy)]
pub struct WindowLimits {
    /// Batches under way.
    pub batches_max: usize,
    /// Bytes under way.
    pub bytes_max: u64,
}

/// Batches under way to one follower.
#[derive(Debug, Clone)]
pub struct Window {
    limits: WindowLimits,
    under_way: VecDeque<(Seq, u64)>,
    bytes: u64,
}

impl Default for WindowLimits {
    fn default() -> Self {
        Self {
            batches_max: 4,
            bytes_max: 16 * 1024 * 1024,
        }
    }
}

impl Window {
    /// Nothing under way.
    pub fn new(limits: WindowLimits) -> Self {
        Self {
            limits,
            under_way: VecDeque::new(),
            bytes: 0,
        }
    }

    /// True while another batch may be read.
    pub fn has_room(&self) -> bool {
        self.under_way.len() < self.limits.batches_max && self.bytes < self.limits.bytes_max
    }

    /// A batch that ends at `to` was sent.
    pub fn sent(&mut self, to: Seq, bytes: u64) {
        self.under_way.push_back((to, bytes));
        self.bytes += bytes;
    }

    /// The follower has applied everything up to `seq`.
    pub fn applied(&mut self, seq: Seq) {
        while let Some((_, bytes)) = self.under_way.pop_front_if(|(to, _)| *to <= seq) {
            self.bytes -= bytes;
        }
    }

    /// Bytes sent and not yet applied.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window::new(WindowLimits {
            batches_max: 3,
            bytes_max: 100,
        })
    }

    #[test]
    fn it_is_full_at_the_number_of_batches_and_opens_with_each_one_applied() {
        let mut window = window();
        for seq in 1..=3 {
            assert!(window.has_room());
            window.sent(Seq::new(seq), 1);
        }
        assert!(!window.has_room());
        window.applied(Seq::new(1));
        assert!(window.has_room());
        assert_eq!(window.bytes(), 2);
    }

    #[test]
    fn it_is_full_at_the_number_of_bytes_and_a_large_batch_goes_out_alone() {
        let mut window = window();
        window.sent(Seq::new(5), 5_000);
        assert!(!window.has_room());
        window.applied(Seq::new(4));
        assert!(!window.has_room());
        window.applied(Seq::new(5));
        assert!(window.has_room());
        assert_eq!(window.bytes(), 0);
    }

    #[test]
    fn one_acknowledgement_may_cover_several_batches() {
        let mut window = window();
        for seq in 1..=3 {
            window.sent(Seq::new(seq), 10);
        }
        window.applied(Seq::new(3));
        assert_eq!(window.bytes(), 0);
    }
}
