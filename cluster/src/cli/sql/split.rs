//! Finding the ends of statements in text as it is typed.
//!
//! Only enough of SQL's lexis to know which semicolons count: not those inside quotes and
//! comments, nor those inside a trigger's body. The node parses what is sent; this only
//! decides when to send.

/// Splits off complete statements; the second value is what is not complete yet.
pub fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut start = 0;
    let mut scanner = Scanner::new(text);
    while let Some(end) = scanner.next_end() {
        let statement = text[start..end].trim();
        if !is_blank(statement) {
            statements.push(statement);
        }
        start = end;
    }
    (statements, &text[start..])
}

/// True when nothing but space, comments and semicolons is left.
pub fn is_blank(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    std::iter::from_fn(|| scanner.next_token()).all(|token| token == Token::Semicolon)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Semicolon,
    Word(&'a str),
    Other,
    /// A quote or comment that is not closed.
    Open,
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    words: Vec<&'a str>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            words: Vec::new(),
        }
    }

    /// Where the next complete statement ends, its semicolon included.
    fn next_end(&mut self) -> Option<usize> {
        self.words.clear();
        let mut last = Token::Other;
        // Inside a trigger's body `; END ;` closes; before its BEGIN one semicolon would, too,
        // but a trigger always has a body.
        let mut before_last = Token::Other;
        loop {
            let token = self.next_token()?;
            match token {
                Token::Open => return None,
                Token::Semicolon if !self.is_trigger() => return Some(self.at),
                Token::Semicolon
                    if last == Token::Word("end") && before_last == Token::Semicolon =>
                {
                    return Some(self.at);
                }
                Token::Word(word) if self.words.len() < 4 => self.words.push(word),
                _ => {}
            }
            before_last = last;
            last = match token {
                Token::Word(word) if word.eq_ignore_ascii_case("end") => Token::Word("end"),
                other => other,
            };
        }
    }

    fn is_trigger(&self) -> bool {
        let is = |at: usize, words: &[&str]| {
            let word = self.words.get(at);
            word.is_some_and(|word| words.iter().any(|w| w.eq_ignore_ascii_case(word)))
        };
        is(0, &["create"])
            && (is(1, &["trigger"]) || is(1, &["temp", "temporary"]) && is(2, &["trigger"]))
    }

    fn next_token(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = &self.text[self.at..];
            let first = rest.chars().next()?;
            let length = match first {
                c if c.is_whitespace() => c.len_utf8(),
                '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
                '/' if rest.starts_with("/*") => match rest[2..].find("*/") {
                    Some(end) => end + 4,
                    None => return self.open(),
                },
                ';' => return Some(self.take(1, Token::Semicolon)),
                '\'' | '"' | '`' => match rest[1..].find(first) {
                    Some(end) => return Some(self.take(end + 2, Token::Other)),
                    None => return self.open(),
                },
                '[' => match rest.find(']') {
                    Some(end) => return Some(self.take(end + 1, Token::Other)),
                    None => return self.open(),
                },
                c if c.is_alphanumeric() || c == '_' => {
                    let end = rest
                        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                        .unwrap_or(rest.len());
                    return Some(self.take(end, Token::Word(&rest[..end])));
                }
                c => return Some(self.take(c.len_utf8(), Token::Other)),
            };
            self.at += length;
        }
    }

    fn take(&mut self, length: usize, token: Token<'a>) -> Token<'a> {
        self.at += length;
        token
    }

    fn open(&mut self) -> Option<Token<'a>> {
        self.at = self.text.len();
        Some(Token::Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_quotes_and_comments_do_not_count() {
        let text = "SELECT ';', \"a;b\", `c;`, [d;] -- ;\n/* ; */; SELECT 'it''s;'; SELECT 3";
        let (statements, rest) = split(text);
        assert_eq!(statements.len(), 2);
        assert_eq!(statements[1], "SELECT 'it''s;';");
        assert_eq!(rest, " SELECT 3");
    }

    #[test]
    fn a_trigger_ends_with_its_end() {
        let trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET x = CASE WHEN 1 THEN 2 \
                       END; DELETE FROM c; END;";
        let text = format!("{trigger} SELECT 1;");
        assert_eq!(split(&text).0, [trigger, "SELECT 1;"]);
        let open = "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM c;";
        assert_eq!(split(open), (vec![], open));
    }

    #[test]
    fn what_is_open_waits_and_blank_text_is_no_statement() {
        assert_eq!(split("SELECT 'a;"), (vec![], "SELECT 'a;"));
        assert_eq!(split("/* a; "), (vec![], "/* a; "));
        assert_eq!(split(";; -- x\n;").0, [""; 0]);
        assert!(is_blank(" -- only a remark\n") && !is_blank("x"));
    }
}
