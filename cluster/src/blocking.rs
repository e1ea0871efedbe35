//! Runs what blocks on a thread that may.

/// Waits for work of the engine without holding up the runtime.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, tidegate_engine::Error> + Send + 'static,
) -> Result<T, tidegate_engine::Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.expect("the engine contains its own panics")
}
