//! The table for people: as a TOML file of defaults, and as a page of documentation.

use std::fmt::Write as _;

use super::keys::{KEYS, Key, Kind, Scope};

/// A complete file: every key with its default and its meaning as a comment.
pub fn default_toml() -> String {
    let mut out = String::from("# Every key of Tidegate with its default.\n");
    for (section, keys) in sections() {
        write!(out, "\n[{section}]\n").expect("a String takes everything");
        for key in keys {
            for line in wrap(key.meaning, 96) {
                writeln!(out, "# {line}").expect("a String takes everything");
            }
            writeln!(out, "{} = {}", name(key), key.default).expect("a String takes everything");
        }
    }
    out
}

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut out = String::from(HEAD);
    for (section, keys) in sections() {
        write!(out, "\n## [{section}]\n\n").expect("a String takes everything");
        out.push_str("| key | flag, variable | default | meaning |\n|---|---|---|---|\n");
        for key in keys {
            let agree = match key.scope {
                Scope::Node => "",
                Scope::Cluster => " *Must agree on all nodes.*",
            };
            let words = match key.kind {
                Kind::Choice(words) => format!(" One of `{}`.", words.join("`, `")),
                _ => String::new(),
            };
            writeln!(
                out,
                "| `{}` | `--{}`<br>`{}` | `{}` | {}{words}{agree} |",
                name(key),
                key.flag,
                key.variable(),
                key.default,
                key.meaning,
            )
            .expect("a String takes everything");
        }
    }
    out
}

const HEAD: &str = "\
# Configuration

<!-- Generated from cluster/src/config/keys.rs: UPDATE_DOCS=1 cargo nextest run docs -->

One TOML file (`tidegate serve --config FILE`), overridden by `TIDEGATE_…` variables, overridden by
flags. Every key has a default, so no file is needed to try. An unknown key is an error that names
the nearest known one; an unknown `TIDEGATE_` variable is warned of, because Kubernetes sets some of
its own. Sizes are numbers of bytes or `\"64MiB\"`, `\"2GB\"`; durations are `\"250ms\"`, `\"5s\"`, `\"2m\"`.

`\"auto\"` is derived at start from the CPU and memory limits of the cgroup (v1 and v2) or the machine.
Each derived value is logged with where it came from; a value you set always wins.

`tidegate config check FILE` validates a file; `tidegate config default` prints a complete one.
";

fn sections() -> Vec<(&'static str, Vec<&'static Key>)> {
    let mut sections: Vec<(&str, Vec<&Key>)> = Vec::new();
    for key in KEYS {
        let section = key.path.split('.').next().unwrap_or_default();
        match sections.last_mut() {
            Some((last, keys)) if *last == section => keys.push(key),
            _ => sections.push((section, vec![key])),
        }
    }
    sections
}

fn name(key: &Key) -> &'static str {
    key.path.rsplit('.').next().unwrap_or(key.path)
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Low};
    use super::*;
    use std::path::Path;

    #[test]
    fn the_printed_defaults_are_a_valid_file_that_changes_nothing() {
        let low = Low::from_toml(Path::new("default"), &default_toml()).expect("valid");
        let printed = Config::resolve(&low).expect("resolves");
        let nothing = Config::resolve(&Low::default()).expect("resolves");
        assert_eq!(printed, nothing);
    }
}
