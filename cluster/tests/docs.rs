//! Documents that are generated from tables in the code. `UPDATE_DOCS=1` writes them anew.

use std::path::{Path, PathBuf};

use tidegate::front::hrana::error::codes_markdown;

#[test]
fn the_page_of_configuration_is_what_the_table_of_keys_says() {
    check(&path("configuration.md"), &tidegate::config::markdown());
}

#[test]
fn the_page_of_the_protocol_lists_every_error_code() {
    let path = path("protocol.md");
    let page = std::fs::read_to_string(&path).expect("docs/protocol.md is there");
    let (begin, end) = ("<!-- codes: generated -->\n", "<!-- /codes -->");
    let before = page.split(begin).next().expect("a first part");
    let after = page
        .split(end)
        .nth(1)
        .expect("docs/protocol.md marks where the codes go");
    check(
        &path,
        &format!("{before}{begin}{}{end}{after}", codes_markdown()),
    );
}

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../docs")
        .join(name)
}

fn check(path: &Path, generated: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, generated).expect("writes");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is not up to date: run the tests with UPDATE_DOCS=1",
        path.display()
    );
}
