//! `tidegate health`: one question, answered by the exit code.

use clap::Args;
use serde_json::json;

use super::address::{Address, HEALTH_DEFAULT};
use super::{Exit, Failure, Output};

/// What to ask.
#[derive(Args)]
pub struct HealthArgs {
    #[command(flatten)]
    address: Address,
    /// What to ask for: readyz, livez, startupz, primary, replica
    #[arg(long, default_value = "readyz")]
    probe: String,
}

/// Asks; exit code 0 for yes, 1 for no, 3 when nobody answers.
pub async fn run(args: HealthArgs, output: Output) -> Result<Exit, Failure> {
    let node = args.address.node(HEALTH_DEFAULT)?;
    let (status, text) = node.get(&format!("/{}?verbose", args.probe)).await?;
    let healthy = status == 200;
    match output {
        Output::Text => print!("{text}"),
        Output::Json => {
            let answer = json!({"healthy": healthy, "status": status, "text": text});
            println!("{answer}");
        }
    }
    Ok(match status {
        200 => Exit::Success,
        503 => Exit::Failure,
        _ => Exit::Usage,
    })
}
