//! `tidegate forget`: stops keeping the log for a node that will not come back.
//!
//! Asks the node that it followed. A node that comes back nevertheless is fed from the log if
//! that still reaches, and takes a snapshot by itself otherwise.

use clap::Args;
use serde_json::{Value, json};

use super::address::{CLIENT_DEFAULT, Node};
use super::{Exit, Failure, Output};

/// Whom to forget, and which node to ask.
#[derive(Args)]
pub struct ForgetArgs {
    /// Name of the node that will not come back
    node: String,
    /// Client address of the node that it followed
    #[arg(long, value_name = "URL", env = "TIDEGATE_URL", default_value = CLIENT_DEFAULT)]
    url: String,
}

/// Asks. Exit code 1 when the node is unknown, or connected.
pub async fn run(args: ForgetArgs, output: Output) -> Result<Exit, Failure> {
    let node = Node::new(&args.url)?;
    let body = json!({"node": args.node}).to_string();
    let (status, text) = node.post("/admin/v1/forget", body).await?;
    let answer: Value = serde_json::from_str(&text)
        .map_err(|_| Failure::usage(format!("{} answered {status}: {text}", node.base())))?;
    if output == Output::Json {
        println!("{answer}");
    } else {
        eprintln!("{}", answer["message"].as_str().unwrap_or_default());
    }
    Ok(match status {
        200 => Exit::Success,
        400 => Exit::Usage,
        _ => Exit::Failure,
    })
}
