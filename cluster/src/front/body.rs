//! Request bodies, bounded one by one and all together.
//!
//! Without a common bound a few dozen clients that each send the largest body allowed would
//! take all memory. Memory is taken from the budget as bytes arrive and given back when the
//! request is done; when there is none left the request is turned away at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::hrana::error::WireError;

/// The semaphore counts kibibytes: its permits are 32-bit numbers.
const UNIT: u64 = 1_024;

/// Memory for bodies.
pub struct BodyBudget {
    units: Arc<Semaphore>,
    one_max: u64,
    time_max: Duration,
}

/// A body in memory; its share of the budget is given back when dropped.
pub struct HeldBody {
    bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl BodyBudget {
    /// So many bytes for all bodies, for one, and so long for one to arrive.
    pub fn new(all_max: u64, one_max: u64, time_max: Duration) -> Self {
        let units = usize::try_from(all_max / UNIT).unwrap_or(usize::MAX);
        Self {
            units: Arc::new(Semaphore::new(units.clamp(1, Semaphore::MAX_PERMITS))),
            one_max,
            time_max,
        }
    }

    /// Reads a body to its end.
    pub async fn read(&self, headers: &HeaderMap, body: Body) -> Result<HeldBody, WireError> {
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.one_max) {
            return Err(self.too_large());
        }
        match tokio::time::timeout(self.time_max, self.collect(body)).await {
            Ok(read) => read,
            Err(_) => Err(WireError::new(
                "TIDEGATE_MALFORMED",
                format!("the body did not arrive within {:?}", self.time_max),
            )),
        }
    }

    async fn collect(&self, mut body: Body) -> Result<HeldBody, WireError> {
        let mut permit: Option<OwnedSemaphorePermit> = None;
        let mut held = 0;
        let mut first = Bytes::new();
        let mut rest: Vec<u8> = Vec::new();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| {
                WireError::new("TIDEGATE_MALFORMED", format!("the body broke off: {e}"))
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            length += data.len() as u64;
            if length > self.one_max {
                return Err(self.too_large());
            }
            let wanted = length.div_ceil(UNIT);
            if wanted > held {
                let more = self.take(wanted - held)?;
                held = wanted;
                match &mut permit {
                    Some(permit) => permit.merge(more),
                    None => permit = Some(more),
                }
            }
            // Nearly all bodies are one frame and need no copy.
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
        }
        let bytes = if rest.is_empty() { first } else { rest.into() };
        Ok(HeldBody {
            bytes,
            _permit: permit,
        })
    }

    fn take(&self, units: u64) -> Result<OwnedSemaphorePermit, WireError> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        self.units
            .clone()
            .try_acquire_many_owned(units)
            .map_err(|_| {
                WireError::new(
                    "TIDEGATE_OVERLOADED",
                    "no memory left for request bodies (http.request_memory); nothing was run",
                )
            })
    }

    fn too_large(&self) -> WireError {
        WireError::new(
            "TIDEGATE_TOO_LARGE",
            format!(
                "the body is larger than {} bytes (http.request_bytes_max)",
                self.one_max
            ),
        )
    }
}

impl std::ops::Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_one_by_one_and_together() {
        let budget = BodyBudget::new(4_096, 3_000, Duration::from_secs(10));
        let headers = HeaderMap::new();
        let read = |size: usize| budget.read(&headers, Body::from(vec![7u8; size]));
        assert_eq!(read(3_001).await.err().map(|e| e.status()), Some(413));
        let held = read(3_000).await.expect("fits");
        assert_eq!(held.len(), 3_000);
        assert_eq!(read(2_000).await.err().map(|e| e.status()), Some(503));
        drop(held);
        assert!(read(2_000).await.is_ok());
    }
}
