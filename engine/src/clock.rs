//! The wall clock, read in this one place.
//!
//! Only stamps that people or other nodes read come from here; limits and waits use
//! `Instant`. Tests shift the clock of one process with an environment variable, which is
//! read once and logged when the engine opens.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds added to the wall clock of this process. For tests.
pub const OFFSET_VARIABLE: &str = "TIDEGATE_TEST_CLOCK_OFFSET_MS";

/// Milliseconds since 1970 on this node's clock.
pub fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis())
        .unwrap_or(i64::MAX)
        .saturating_add(offset_ms())
}

/// The offset in force, zero unless a test set the variable.
pub fn offset_ms() -> i64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        std::env::var(OFFSET_VARIABLE)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    })
}
