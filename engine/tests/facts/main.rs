//! What the pinned engine does, one test for each numbered fact of `docs/engine.md`.
//!
//! Tidegate is shaped by what this release of the engine gets right and wrong. Each fact is
//! asserted as it is today, traps included, so that raising the engine's version fails here
//! first and shows exactly what changed. A test that fails after an upgrade is not a bug of
//! the test: read what `docs/engine.md` derives from the fact, then change both.

mod bed;
mod capture;
mod ddl;
mod engine;
mod faults;
mod finals;
mod pragmas;
mod process;
mod promotion;
mod transactions;
mod values;
mod wal;
