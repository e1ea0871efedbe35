//! Every bound of replication, with its default.
//!
//! Plain fields: build one with `default()` and change what you need.

use std::time::Duration;

use crate::backoff::BackoffLimits;
use crate::retention;
use crate::window::WindowLimits;

/// Settings of both sides.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Each side says something at least this often.
    pub heartbeat_interval: Duration,
    /// A side that heard nothing for so many intervals ends the stream.
    pub silent_intervals_max: u32,
    /// A connection, and the first word on a stream, must come about within this time.
    pub dial_deadline: Duration,
    /// A peer that takes no message for this long is cut off.
    pub send_deadline: Duration,
    /// HTTP/2 pings go out this often, idle or not.
    pub ping_interval: Duration,
    /// A connection whose ping is not answered within this time is dead.
    pub ping_deadline: Duration,
    /// Batches under way to one follower.
    pub window: WindowLimits,
    /// Messages that wait in the process for the network, each of [`tidegate_proto::PART_BYTES_MAX`]
    /// at most. When they are full the source's thread waits, up to the send deadline.
    pub messages_queued_max: usize,
    /// Batches and comparisons received and not yet worked on. When they are full the
    /// follower reads nothing from the stream.
    pub work_queued_max: usize,
    /// Bytes in one part of a batch. Small, because a link of a few kB/s must still complete a
    /// message within the silence that ends a stream; larger ones were not faster.
    pub batch_part_bytes: usize,
    /// Bytes in one piece of a snapshot, which may be silent for longer.
    pub snapshot_part_bytes: usize,
    /// Bytes of a batch that stay in memory; the rest goes to an unnamed file.
    pub spool_memory_bytes: usize,
    /// A batch larger than this is answered with a snapshot, by the source, and ends the
    /// stream at the follower.
    pub batch_bytes_max: u64,
    /// Waits between dials.
    pub backoff: BackoffLimits,
    /// A step of a pass must be answered within this time.
    pub answer_deadline: Duration,
    /// Share of the time that a pass in the background may compare, in percent.
    pub background_duty_percent: u32,
    /// A proof of this age is renewed in the background.
    pub proof_renewed_after: Duration,
    /// After a pass without a verdict the next one waits this long.
    pub pass_retry: Duration,
    /// How long the log is kept for a follower.
    pub retention: retention::Limits,
    /// Streams and snapshots served at once; one more waits.
    pub streams_max: u32,
    /// Forwarded sessions served at once; one more is refused as overloaded.
    pub sessions_max: usize,
    /// Bytes of one forwarded request; a larger one is refused before it is sent.
    pub session_request_bytes_max: usize,
    /// Bytes of the reply to one. The primary bounds its results itself, so this guards the
    /// replica's memory against a primary that is set up otherwise.
    pub session_reply_bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(500),
            silent_intervals_max: 10,
            dial_deadline: Duration::from_secs(5),
            send_deadline: Duration::from_secs(30),
            ping_interval: Duration::from_secs(5),
            ping_deadline: Duration::from_secs(10),
            window: WindowLimits::default(),
            messages_queued_max: 8,
            work_queued_max: 16,
            batch_part_bytes: 16 << 10,
            snapshot_part_bytes: 64 << 10,
            spool_memory_bytes: 4 << 20,
            batch_bytes_max: 8 << 30,
            backoff: BackoffLimits::default(),
            answer_deadline: Duration::from_secs(60),
            background_duty_percent: 10,
            proof_renewed_after: Duration::from_secs(3_600),
            pass_retry: Duration::from_secs(5),
            retention: retention::Limits::default(),
            streams_max: 64,
            sessions_max: 512,
            session_request_bytes_max: 128 << 20,
            session_reply_bytes_max: 512 << 20,
        }
    }
}

impl Settings {
    /// Silence longer than this ends a stream.
    pub fn silence_max(&self) -> Duration {
        self.heartbeat_interval * self.silent_intervals_max
    }
}
