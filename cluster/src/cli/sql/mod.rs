//! `tidegate sql`: a shell on a terminal, a runner of statements otherwise.

mod client;
mod dot;
mod dump;
mod format;
mod split;

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use super::address::{Address, CLIENT_DEFAULT};
use super::{Exit, Failure, Output};
use client::{Client, Refusal};
use format::Mode;

/// Where, what and in which form.
#[derive(Args)]
pub struct SqlArgs {
    #[command(flatten)]
    address: Address,
    /// Runs these statements and ends
    #[arg(short, long, value_name = "SQL")]
    command: Option<String>,
    /// Form of rows; `--output json` means json
    #[arg(long, value_enum)]
    mode: Option<Mode>,
}

/// What the shell remembers.
pub struct Shell {
    client: Client,
    mode: Mode,
    timing: bool,
}

/// What to do after a line.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Quit,
}

/// Runs the shell. Exit code 1 when a statement failed; a script stops there.
pub async fn run(args: SqlArgs, output: Output) -> Result<Exit, Failure> {
    let terminal = std::io::stdin().is_terminal();
    let mode = args.mode.unwrap_or(match output {
        Output::Json => Mode::Json,
        Output::Text => Mode::Table,
    });
    let mut shell = Shell {
        client: Client::new(args.address.node(CLIENT_DEFAULT)?),
        mode,
        timing: terminal && args.command.is_none(),
    };
    let outcome = match args.command {
        Some(text) => shell.script(&text).await,
        None if terminal => shell.interactive().await,
        None => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(Failure::usage)?;
            shell.script(&text).await
        }
    };
    shell.client.close().await;
    outcome.map(|()| Exit::Success)
}

impl Shell {
    async fn interactive(&mut self) -> Result<(), Failure> {
        let mut editor = DefaultEditor::new().map_err(Failure::failed)?;
        let history = history_file();
        if let Some(history) = &history {
            editor.load_history(history).ok();
        }
        eprintln!(
            "Connected to {}. Statements end with `;`, .help lists commands.",
            self.client.base()
        );
        let mut pending = String::new();
        loop {
            let prompt = match (pending.is_empty(), self.client.in_transaction()) {
                (false, _) => "     ...> ",
                (true, true) => "tidegate*> ",
                (true, false) => "tidegate> ",
            };
            match editor.readline(prompt) {
                Ok(line) => {
                    let next = self.line(&line, &mut pending, &mut editor).await;
                    match next {
                        Ok(Next::Continue) => {}
                        Ok(Next::Quit) => break,
                        Err(failure) => eprintln!("{}", failure.message),
                    }
                }
                Err(ReadlineError::Interrupted) => pending.clear(),
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        if let Some(history) = &history {
            editor.save_history(history).ok();
        }
        Ok(())
    }

    async fn line(
        &mut self,
        line: &str,
        pending: &mut String,
        editor: &mut DefaultEditor,
    ) -> Result<Next, Failure> {
        if pending.is_empty() && line.trim_start().starts_with('.') {
            editor.add_history_entry(line).ok();
            return self.dot(line.trim()).await;
        }
        pending.push_str(line);
        pending.push('\n');
        let (statements, rest) = split::split(pending);
        let statements: Vec<String> = statements.into_iter().map(str::to_owned).collect();
        let rest = match split::is_blank(rest) {
            true => String::new(),
            false => rest.to_owned(),
        };
        *pending = rest;
        for statement in statements {
            editor.add_history_entry(&statement).ok();
            self.statement(&statement).await?;
        }
        Ok(Next::Continue)
    }

    /// Runs statements and dot commands from a text, to the first failure.
    async fn script(&mut self, text: &str) -> Result<(), Failure> {
        let mut pending = String::new();
        for line in text.split_inclusive('\n') {
            if pending.trim().is_empty() && line.starts_with('.') {
                if Box::pin(self.dot(line.trim())).await? == Next::Quit {
                    return Ok(());
                }
                continue;
            }
            pending.push_str(line);
            // Lines without a semicolon complete nothing.
            if !line.contains(';') {
                continue;
            }
            let (statements, rest) = split::split(&pending);
            for statement in &statements {
                self.statement(statement).await?;
            }
            pending = rest.to_owned();
        }
        if !split::is_blank(&pending) {
            self.statement(pending.trim()).await?;
        }
        Ok(())
    }

    async fn statement(&mut self, sql: &str) -> Result<(), Failure> {
        let started = Instant::now();
        let answer = self.client.execute(sql).await.map_err(failure)?;
        let took = started.elapsed();
        print(&format::rows(&answer, self.mode))?;
        if self.timing {
            let what = match answer.columns.is_empty() {
                true => format!("{} changed", answer.changes),
                false => format!("{} rows", answer.rows.len()),
            };
            eprintln!("{what}, {:.1} ms", took.as_secs_f64() * 1e3);
        }
        Ok(())
    }
}

/// A statement's failure for people.
fn failure(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Sql { code, message } => Failure::failed(format!("{message} [{code}]")),
        Refusal::Node(failure) => failure,
    }
}

/// Writes results; a reader that has gone away (`| head`) ends the program quietly.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => result.map_err(Failure::failed),
    }
}

fn history_file() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".tidegate_history"))
}
