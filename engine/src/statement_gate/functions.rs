//! Which functions a statement may call.
//!
//! A SELECT can write: `setval` and `nextval` change the engine's sequence tables even on a
//! connection that is read-only, leave nothing in the log and take the lock. So functions
//! are allowed by name, and what the lists do not hold is unknown. Functions that give
//! another value at each call (`random()`, `datetime('now')`) are fine: replicas receive the
//! rows that came of it, never the statement.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What the gate says to a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FunctionRule {
    /// Runs as it is.
    Allowed,
    /// Answers for the session that asks: replaced by a literal before it runs.
    SessionValue(SessionFunction),
    /// Belongs to arrays and custom types.
    CustomType,
    /// Known to the engine and refused.
    Refused,
    /// Known to nobody.
    Unknown,
}

/// The three functions whose answers belong to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionFunction {
    /// `last_insert_rowid()`
    LastInsertRowid,
    /// `changes()`
    Changes,
    /// `total_changes()`
    TotalChanges,
}

/// Looks a function up. Names compare without regard to case.
pub(super) fn function_rule(name: &str) -> FunctionRule {
    let name = name.to_ascii_lowercase();
    RULES
        .get(name.as_str())
        .copied()
        .unwrap_or(FunctionRule::Unknown)
}

/// Looks a table-valued function up.
pub(super) fn is_table_function_allowed(name: &str) -> bool {
    TABLE_FUNCTIONS
        .split_ascii_whitespace()
        .any(|allowed| allowed.eq_ignore_ascii_case(name))
}

/// The allowed functions by group, for the documentation.
pub(super) const ALLOWED: [(&str, &str); 7] = [
    ("Core", CORE),
    ("Aggregates", AGGREGATE),
    ("Window functions", WINDOW),
    ("Date and time", DATE),
    ("JSON", JSON),
    ("Mathematics", MATH),
    ("The engine's own", EXTENSION),
];

static RULES: LazyLock<HashMap<&'static str, FunctionRule>> = LazyLock::new(|| {
    let mut rules = HashMap::new();
    for (_, group) in ALLOWED {
        rules.extend(words(group).map(|name| (name, FunctionRule::Allowed)));
    }
    rules.extend(words(CUSTOM_TYPE).map(|name| (name, FunctionRule::CustomType)));
    rules.extend(words(REFUSED).map(|name| (name, FunctionRule::Refused)));
    let session = [
        ("last_insert_rowid", SessionFunction::LastInsertRowid),
        ("changes", SessionFunction::Changes),
        ("total_changes", SessionFunction::TotalChanges),
    ];
    rules.extend(session.map(|(name, which)| (name, FunctionRule::SessionValue(which))));
    rules
});

fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

const CORE: &str = "\
    abs btrim char char_length character_length chr coalesce concat concat_ws format \
    get_byte glob hex if ifnull iif instr length like likelihood likely lower lpad ltrim max \
    min nullif octet_length printf quote random randomblob repeat replace reverse round rpad \
    rtrim set_byte sign soundex sqlite_source_id sqlite_version string_reverse strpos substr \
    substring subtype trim turso_version typeof unhex unicode unistr unistr_quote unlikely \
    upper zeroblob";

const AGGREGATE: &str = "\
    avg count group_concat median percentile percentile_cont percentile_disc stddev \
    string_agg sum total";

const WINDOW: &str = "\
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank \
    row_number";

const DATE: &str = "\
    date datetime julianday strftime time timediff unixepoch";

const JSON: &str = "\
    json json_array json_array_length json_error_position json_extract json_group_array \
    json_group_object json_insert json_object json_patch json_pretty json_quote json_remove \
    json_replace json_set json_type json_valid jsonb jsonb_array jsonb_extract \
    jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove \
    jsonb_replace jsonb_set";

const MATH: &str = "\
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor gcd lcm \
    ln log log10 log2 mod pi pow power radians sin sinh sqrt tan tanh trunc";

/// What the engine brings beyond SQLite: UUIDs, its own dates, REGEXP, vectors.
const EXTENSION: &str = "\
    dur_h dur_m dur_ms dur_ns dur_s dur_us gen_random_uuid make_date make_timestamp regexp \
    time_add time_add_date time_after time_before time_compare time_date time_equal \
    time_fmt_date time_fmt_datetime time_fmt_iso time_fmt_time time_get time_get_day \
    time_get_hour time_get_isoweek time_get_isoyear time_get_minute time_get_month \
    time_get_nano time_get_second time_get_weekday time_get_year time_get_yearday time_micro \
    time_milli time_nano time_now time_parse time_round time_since time_sub time_to_micro \
    time_to_milli time_to_nano time_to_unix time_trunc time_unix time_until to_timestamp \
    uuid4 uuid4_str uuid7 uuid7_str uuid7_timestamp_ms uuid_blob uuid_str vector vector1bit \
    vector32 vector32_sparse vector64 vector8 vector_concat vector_distance_cos \
    vector_distance_dot vector_distance_jaccard vector_distance_l2 vector_extract \
    vector_slice";

/// Allowed in FROM. The PRAGMAs among them only read, and what they say of internal objects
/// is filtered or refused where they are called.
pub(super) const TABLE_FUNCTIONS: &str = "\
    json_each json_tree generate_series pragma_table_info pragma_table_xinfo \
    pragma_table_list pragma_index_list pragma_index_info pragma_index_xinfo \
    pragma_foreign_key_list pragma_function_list pragma_user_version pragma_application_id \
    pragma_schema_version pragma_page_count pragma_page_size pragma_freelist_count \
    pragma_encoding pragma_integrity_check pragma_quick_check";

/// Functions behind the engine's experimental types.
const CUSTOM_TYPE: &str = "\
    array array_agg array_append array_cat array_contains array_contains_all array_element \
    array_length array_overlap array_overlaps array_position array_prepend array_remove \
    array_set_element array_slice array_to_string array_upper boolean_to_int int_to_boolean numeric_add numeric_decode numeric_div \
    numeric_encode numeric_eq numeric_lt numeric_mul numeric_sub string_to_array \
    struct_extract struct_pack test_uint_add test_uint_decode test_uint_div test_uint_encode \
    test_uint_eq test_uint_lt test_uint_mul test_uint_sub union_extract union_tag \
    union_value validate_ipaddr";

/// Known to the engine, and not for clients.
const REFUSED: &str = "\
    bin_record_json_object conn_txn_id currval fts_highlight fts_match fts_score \
    is_autocommit load_extension nextval sequence_watermark_experimental setval \
    table_columns_json_array test_nondet_counter";
