//! The engine reads no configuration: every bound is handed over here.

use std::path::Path;

use tidegate_engine::{Options, statement_gate, store};

use crate::autosize::Sizes;
use crate::config::{Config, Synchronous};

/// What the engine is opened with.
pub fn engine_options(config: &Config, sizes: &Sizes) -> Options {
    let sql = &config.sql;
    Options {
        synchronous: match sql.synchronous {
            Synchronous::Full => store::Synchronous::Full,
            Synchronous::Normal => store::Synchronous::Normal,
        },
        cache_kib: u32::try_from(sizes.cache.value >> 10)
            .unwrap_or(u32::MAX)
            .max(1),
        foreign_keys: sql.foreign_keys,
        readers: to_usize(sizes.readers.value),
        read_queue_max: sql.read_queue_max,
        transactions_max: to_usize(sizes.transactions_max.value),
        write_queue_max: sql.write_queue_max,
        write_queue_bytes_max: to_usize(sizes.request_memory.value),
        group_statements_max: sql.group_max,
        statement_time_max: sql.statement_timeout,
        write_time_max: sql.write_timeout,
        permit_wait_max: sql.permit_wait,
        transaction_idle_max: sql.transaction_idle,
        transaction_permit_idle_max: sql.transaction_permit_idle,
        transaction_time_max: sql.transaction_total,
        result_bytes_max: to_usize(sizes.result_bytes_max.value),
        wal_checkpoint_bytes: sql.checkpoint_bytes,
        wal_bytes_max: sql.wal_bytes_max,
        limits: statement_gate::Limits {
            sql_bytes_max: sql.sql_bytes_max,
            nesting_max: sql.nesting_max,
            params_max: sql.params_max,
            compound_terms_max: sql.compound_terms_max,
            selects_max: sql.selects_max,
            with_tables_max: sql.with_tables_max,
            upsert_clauses_max: sql.upsert_clauses_max,
            script_bytes_max: sql.script_bytes_max,
            script_statements_max: sql.script_statements_max,
        },
        ..Options::new(Path::new(&config.node.data_dir))
    }
}

/// For sizes of memory, which fit.
pub fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
