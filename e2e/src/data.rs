//! Real data, which lies beside the project and not in it.

use std::path::{Path, PathBuf};

/// A file in `TIDEGATE_TEST_DATA`, else in `../shared/data` from the project. Without it, says
/// why the test is skipped.
pub fn test_data(name: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("TIDEGATE_TEST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = dir.join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!(
        "skipped: {} is absent; set TIDEGATE_TEST_DATA to a directory that has it",
        path.display()
    );
    None
}
