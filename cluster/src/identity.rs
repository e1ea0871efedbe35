//! Who a copy of the data is: its cluster, its epoch, and where it stands on its history.

use std::sync::Arc;

use tidegate_engine::{Engine, meta, openings};
use tidegate_replica::standing;

use crate::blocking::blocking;
use crate::meeting::Own;

/// Which cluster this copy belongs to, and in which epoch its history is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The cluster's id; empty on a node that has none yet.
    pub cluster_id: String,
    /// Epoch of the newest opening; zero before the first.
    pub epoch: u64,
}

impl Identity {
    /// A few rows: short enough to be read here.
    pub fn read(engine: &Engine) -> Result<Self, tidegate_engine::Error> {
        let mut connection = engine.store().reader()?;
        let cluster_id = meta::cluster_id(&mut connection)?;
        let openings = openings::openings(&mut connection)?;
        connection.close()?;
        Ok(Self {
            cluster_id: cluster_id.map_or_else(String::new, |id| id.to_string()),
            epoch: openings.last().map_or(0, |opening| opening.epoch),
        })
    }
}

/// Where this node stands at this moment, by its database.
pub async fn read_own(own: Own, engine: Arc<Engine>) -> Result<Own, tidegate_engine::Error> {
    let read = move || {
        let mut connection = engine.store().reader()?;
        let (standing, _) = standing::read(&engine, &mut connection)
            .map_err(|error| tidegate_engine::Error::Corrupt(error.to_string()))?;
        connection.close()?;
        Ok(standing)
    };
    Ok(Own {
        standing: blocking(read).await?,
        ..own
    })
}
