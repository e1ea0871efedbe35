//! The served core, driven as the front doors drive it: through sessions.

mod basics;
mod checkpoints;
mod groups;
mod kill;
mod limits;
mod sessions;
mod support;
mod transactions;
