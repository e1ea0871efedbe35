//! Where this node stands, read from its database: both sides of a handshake begin with it.

use tidegate_engine::adapter::Connection;
use tidegate_engine::{Engine, Role, Seq, meta, openings, view};

use crate::error::Result;
use crate::history::{History, Opening, SourceFacts, Standing};
use crate::ids::{Epoch, Nonce};

/// Reads cluster, history, position and floor in one transaction.
pub fn read(engine: &Engine, connection: &mut Connection) -> Result<(Standing, SourceFacts)> {
    let _pass = engine.store().gate().enter();
    connection.execute("BEGIN", &[])?;
    let read = read_inside(connection);
    connection.execute("COMMIT", &[])?;
    let (standing, floor) = read?;
    let facts = SourceFacts {
        floor,
        may_write: engine.role() == Role::Primary,
    };
    Ok((standing, facts))
}

fn read_inside(connection: &mut Connection) -> Result<(Standing, Seq)> {
    let openings = openings::openings(connection)?.into_iter().map(opening);
    let standing = Standing {
        cluster: meta::cluster_id(connection)?,
        history: History::new(openings.collect())?,
        seq: view::read_head(connection)?,
    };
    Ok((standing, meta::floor(connection)?))
}

fn opening(opening: openings::Opening) -> Opening {
    Opening {
        epoch: Epoch::new(opening.epoch),
        nonce: Nonce::new(opening.nonce),
        first_seq: opening.first_seq,
        node: opening.node,
        opened_ms: u64::try_from(opening.opened_ms).unwrap_or(0),
        why: opening.why,
    }
}
