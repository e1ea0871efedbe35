//! The served core, driven as the front doors drive it: through sessions.

mod basics;
mod checkpoints;
mod groups;
mod kill;
mod limits;
mod roles;
mod sessions;
mod support;
mod transactions;
mod trims;
