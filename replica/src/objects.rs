//! Schema and final values, object by object, so that a difference has a name.

use std::collections::BTreeMap;

use tidegate_engine::catalogue::{Catalogue, ObjectKind};
use xxhash_rust::xxh3::xxh3_128;

use crate::wire::NamedDigest;

/// Differences that a text names.
const NAMED_MAX: usize = 8;

/// One digest for each object, sequence and header value.
pub fn named_digests(catalogue: &Catalogue) -> Vec<NamedDigest> {
    let digest = |kind: &str, name: &str, content: &str| NamedDigest {
        kind: kind.to_owned(),
        name: name.to_owned(),
        hash: xxh3_128(content.as_bytes()),
    };
    let mut digests: Vec<NamedDigest> = catalogue
        .objects
        .iter()
        .map(|object| digest(object.kind.as_str(), &object.name, &object.text))
        .collect();
    let sequences = catalogue.sequences.iter();
    digests.extend(sequences.map(|(name, value)| digest("sequence", name, &format!("{value:?}"))));
    let numbers = [
        ("user_version", catalogue.user_version),
        ("application_id", catalogue.application_id),
    ];
    digests.extend(numbers.map(|(kind, value)| digest(kind, "", &value.to_string())));
    digests
}

/// Names what differs, from the follower's side. `theirs` may be empty: then nothing can be
/// named. Triggers may also differ in their order alone.
pub fn name_differences(ours: &[NamedDigest], theirs: &[NamedDigest]) -> String {
    if theirs.is_empty() {
        return "schema or final values differ".into();
    }
    let by_name = |digests: &[NamedDigest]| -> BTreeMap<(String, String), u128> {
        let pair = |d: &NamedDigest| ((d.kind.clone(), d.name.clone()), d.hash);
        digests.iter().map(pair).collect()
    };
    let (here, there) = (by_name(ours), by_name(theirs));
    let mut words = Vec::new();
    for (object, hash) in &there {
        match here.get(object) {
            None => words.push(format!("{} is missing here", spoken(object))),
            Some(other) if other != hash => words.push(format!("{} differs", spoken(object))),
            Some(_) => {}
        }
    }
    let extra = here.keys().filter(|object| !there.contains_key(*object));
    words.extend(extra.map(|object| format!("{} exists here only", spoken(object))));
    let count = words.len();
    if count == 0 {
        return "the order of triggers differs".into();
    }
    words.truncate(NAMED_MAX);
    if count > NAMED_MAX {
        words.push(format!("{} more", count - NAMED_MAX));
    }
    words.join(", ")
}

/// The user tables, by name.
pub fn table_names(catalogue: &Catalogue) -> Vec<String> {
    let tables = catalogue.objects.iter();
    tables
        .filter(|object| object.kind == ObjectKind::Table)
        .map(|object| object.name.clone())
        .collect()
}

fn spoken((kind, name): &(String, String)) -> String {
    format!("{kind} {name}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(objects: &[(&str, &str, u128)]) -> Vec<NamedDigest> {
        let digest = |&(kind, name, hash): &(&str, &str, u128)| NamedDigest {
            kind: kind.into(),
            name: name.into(),
            hash,
        };
        objects.iter().map(digest).collect()
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let ours = digests(&[
            ("table", "t", 1),
            ("index", "i", 2),
            ("user_version", "", 3),
        ]);
        let theirs = digests(&[("table", "t", 1), ("view", "v", 2), ("user_version", "", 4)]);
        assert_eq!(
            name_differences(&ours, &theirs),
            "user_version differs, view v is missing here, index i exists here only"
        );
        assert_eq!(
            name_differences(&ours, &ours),
            "the order of triggers differs"
        );
        assert_eq!(
            name_differences(&ours, &[]),
            "schema or final values differ"
        );
    }
}
