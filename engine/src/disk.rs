//! What we ask of the file system beside reading and writing.

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// Bytes that stay free beside what a copy needs, so that a snapshot never takes the space
/// in which the write-ahead log grows.
const RESERVE_BYTES: u64 = 64 << 20;

/// Space of the file system that holds a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes this user may still write.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
}

/// Asks the file system that holds `path`.
pub fn space(path: &Path) -> Result<Space> {
    let found = rustix::fs::statvfs(path).map_err(|e| {
        Error::Io(format!(
            "cannot ask for free space at {}: {e}",
            path.display()
        ))
    })?;
    Ok(Space {
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
        total_bytes: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Fails when a file of this size would not fit beside the reserve.
pub fn require_space(dir: &Path, bytes: u64) -> Result<()> {
    let free = space(dir)?.free_bytes;
    if free >= bytes.saturating_add(RESERVE_BYTES) {
        return Ok(());
    }
    Err(Error::NoSpace(format!(
        "a copy of {} MiB needs {} MiB free at {}, but only {} MiB are",
        bytes >> 20,
        (bytes + RESERVE_BYTES) >> 20,
        dir.display(),
        free >> 20
    )))
}

/// Makes renames and removals inside a directory durable.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(|e| Error::Io(format!("cannot sync {}: {e}", dir.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_does_not_fit_is_refused_before_it_begins() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        assert!(require_space(dir.path(), 1).is_ok());
        let error = require_space(dir.path(), u64::MAX / 4).expect_err("no disk is as large");
        assert!(matches!(error, Error::NoSpace(_)));
    }
}
