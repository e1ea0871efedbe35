//! The query part of a probe's path: `?verbose&exclude=disk&exclude=lag`.

use axum::http::Uri;

/// Names with their values, in order. Nothing here needs percent-decoding.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Of a path.
    pub fn of(uri: &Uri) -> Self {
        let query = uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| match pair.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (pair.to_owned(), String::new()),
        });
        Self(pairs.collect())
    }

    /// True when the name is there and not switched off.
    pub fn has(&self, name: &str) -> bool {
        self.one(name).is_some_and(|v| v != "0" && v != "false")
    }

    /// The last value of a name.
    pub fn one(&self, name: &str) -> Option<&str> {
        self.all(name).last()
    }

    /// All values of a name; commas separate too.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.iter().filter(move |(key, _)| key == name);
        values.flat_map(|(_, value)| value.split(','))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_repeat_and_need_no_value() {
        let uri: Uri = "/readyz?verbose&exclude=disk&exclude=lag,link"
            .parse()
            .expect("a path");
        let query = Query::of(&uri);
        assert!(query.has("verbose") && !query.has("maxlag"));
        assert_eq!(
            query.all("exclude").collect::<Vec<_>>(),
            ["disk", "lag", "link"]
        );
    }
}
