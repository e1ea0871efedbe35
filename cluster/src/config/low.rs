//! What was typed, and where.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::keys::{KEYS, Key, Kind};
use super::{Problem, Problems};

/// Where a value came from, weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A configuration file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// A command-line flag.
    Flag(String),
}

/// A value as text, not yet parsed. A list has one text per element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// The text or texts.
    pub texts: Vec<String>,
    /// Where it came from.
    pub origin: Origin,
}

/// All values that somebody typed, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Low {
    values: BTreeMap<&'static str, Typed>,
}

impl Low {
    /// Reads a file. Every unknown key and every value of a wrong type is a problem.
    pub fn from_file(path: &Path) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            let place = path.display().to_string();
            Problems(vec![Problem::new(place, format!("cannot be read: {e}"))])
        })?;
        Self::from_toml(path, &text)
    }

    /// The same from text; `path` only names it.
    pub fn from_toml(path: &Path, text: &str) -> Result<Self, Problems> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let place = path.display().to_string();
            Problems(vec![Problem::new(place, e.to_string().trim_end())])
        })?;
        let mut low = Self::default();
        let mut problems = Vec::new();
        for (section, entry) in &table {
            match entry {
                toml::Value::Table(entries) => {
                    for (name, value) in entries {
                        let key = format!("{section}.{name}");
                        low.take_toml(path, &key, value, &mut problems);
                    }
                }
                value => low.take_toml(path, section, value, &mut problems),
            }
        }
        if problems.is_empty() {
            Ok(low)
        } else {
            Err(Problems(problems))
        }
    }

    /// Reads variables. Gives back the names that start with `TIDEGATE_` but are no key, each
    /// with the nearest one.
    pub fn from_variables(vars: impl Iterator<Item = (String, String)>) -> (Self, Vec<String>) {
        let mut low = Self::default();
        let mut unknown = Vec::new();
        for (name, value) in vars.filter(|(name, _)| name.starts_with("TIDEGATE_")) {
            match KEYS.iter().find(|key| key.variable() == name) {
                Some(key) => low.set(key, split(key, &value), Origin::Variable(name)),
                None if is_foreign(&name) => {}
                None => unknown.push(format!(
                    "{name} (the nearest is {})",
                    nearest(&name, KEYS.iter().map(Key::variable))
                )),
            }
        }
        (low, unknown)
    }

    /// Sets a value.
    pub fn set(&mut self, key: &Key, texts: Vec<String>, origin: Origin) {
        let path = Key::find(key.path).expect("keys come from the table").path;
        self.values.insert(path, Typed { texts, origin });
    }

    /// Lets `stronger` override this.
    pub fn overridden_by(mut self, stronger: Self) -> Self {
        self.values.extend(stronger.values);
        self
    }

    /// What was typed for a key.
    pub fn get(&self, path: &str) -> Option<&Typed> {
        self.values.get(path)
    }

    fn take_toml(
        &mut self,
        file: &Path,
        path: &str,
        value: &toml::Value,
        problems: &mut Vec<Problem>,
    ) {
        let place = || format!("{path} ({})", file.display());
        let Some(key) = Key::find(path) else {
            let near = nearest(path, KEYS.iter().map(|key| key.path.to_owned()));
            problems.push(Problem::new(
                place(),
                format!("unknown key; the nearest known one is `{near}`"),
            ));
            return;
        };
        match toml_texts(key.kind, value) {
            Some(texts) => self.set(key, texts, Origin::File(file.to_owned())),
            None => problems.push(Problem::new(
                place(),
                format!(
                    "`{value}` has the wrong type; write it like {}",
                    key.default
                ),
            )),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A variable holds a list as one text with commas.
fn split(key: &Key, value: &str) -> Vec<String> {
    match key.kind {
        Kind::List => value
            .split(',')
            .map(|part| part.trim().to_owned())
            .filter(|part| !part.is_empty())
            .collect(),
        _ => vec![value.to_owned()],
    }
}

/// Variables of our name that others set or that are no configuration.
fn is_foreign(name: &str) -> bool {
    name == "TIDEGATE_CONFIG"
        || name == "TIDEGATE_URL"
        || ["TIDEGATE_TEST_", "TIDEGATE_SERVICE_", "TIDEGATE_PORT"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

fn toml_texts(kind: Kind, value: &toml::Value) -> Option<Vec<String>> {
    use toml::Value as V;
    let one = match (kind, value) {
        (Kind::Flag, V::Boolean(b)) => b.to_string(),
        (Kind::Count | Kind::AutoCount | Kind::Bytes | Kind::AutoBytes, V::Integer(i)) => {
            i.to_string()
        }
        (Kind::Bytes | Kind::AutoBytes | Kind::Duration, V::String(s)) => s.clone(),
        (Kind::AutoCount, V::String(s)) if s == "auto" => s.clone(),
        (Kind::Text | Kind::Address | Kind::Path | Kind::Choice(_), V::String(s)) => s.clone(),
        (Kind::List, V::Array(items)) => {
            return items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
        }
        _ => return None,
    };
    Some(vec![one])
}

/// The candidate with the smallest edit distance; a missing section costs little.
fn nearest(word: &str, candidates: impl Iterator<Item = String>) -> String {
    let last = |path: &str| path.rsplit('.').next().unwrap_or(path).to_owned();
    candidates
        .min_by_key(|candidate| {
            let whole = edit_distance(word, candidate);
            whole.min(edit_distance(&last(word), &last(candidate)) + 1)
        })
        .unwrap_or_default()
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(text: &str) -> Result<Low, Problems> {
        Low::from_toml(Path::new("t.toml"), text)
    }

    #[test]
    fn an_unknown_key_names_the_nearest_known_one() {
        let problems = toml("[listen]\ncleint = \"127.0.0.1:1\"").expect_err("unknown");
        assert_eq!(
            problems.to_string(),
            "listen.cleint (t.toml): unknown key; the nearest known one is `listen.client`"
        );
        let problems = toml("[sql]\ndata_dir = \"x\"").expect_err("wrong section");
        assert!(problems.to_string().contains("`node.data_dir`"));
    }

    #[test]
    fn a_value_of_a_wrong_type_says_how_to_write_it() {
        let problems =
            toml("[cluster]\nack = \"two\"\n[sql]\nforeign_keys = 1").expect_err("types");
        assert_eq!(problems.0.len(), 2);
        assert!(problems.to_string().contains("write it like true"));
    }

    #[test]
    fn variables_override_the_file_and_flags_override_variables() {
        let file = toml("[node]\nid = \"file\"\n[cluster]\nack = 1\nname = \"c\"").expect("fine");
        let vars = [("TIDEGATE_NODE_ID", "var"), ("TIDEGATE_ACK", "2")];
        let vars = vars.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let (vars, unknown) = Low::from_variables(vars.into_iter());
        assert!(unknown.is_empty());
        let mut flags = Low::default();
        let key = Key::find("node.id").expect("known");
        flags.set(key, vec!["flag".into()], Origin::Flag("node-id".into()));
        let low = file.overridden_by(vars).overridden_by(flags);
        let text = |path| low.get(path).map(|typed| typed.texts[0].as_str());
        assert_eq!(text("node.id"), Some("flag"));
        assert_eq!(text("cluster.ack"), Some("2"));
        assert_eq!(text("cluster.name"), Some("c"));
    }

    #[test]
    fn unknown_variables_are_told_but_those_of_kubernetes_are_not() {
        let vars = [
            "TIDEGATE_PORT",
            "TIDEGATE_SERVICE_HOST",
            "TIDEGATE_NODE_IDD",
        ];
        let vars = vars.map(|name| (name.to_owned(), "x".to_owned()));
        let (_, unknown) = Low::from_variables(vars.into_iter());
        assert_eq!(
            unknown,
            ["TIDEGATE_NODE_IDD (the nearest is TIDEGATE_NODE_ID)"]
        );
    }
}
