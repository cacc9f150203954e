//! The agentbox program.

use std::process::ExitCode;

use agentbox::cli::{show::ShowCommand, verify::VerifyCommand};
use clap::Parser;

#[derive(Parser)]
#[command(name = "agentbox", version)]
enum Cli {
    Show(ShowCommand),
    Verify(VerifyCommand),
}

fn main() -> anyhow::Result<ExitCode> {
    let code = match Cli::parse() {
        Cli::Show(command) => command.run(),
        Cli::Verify(command) => command.run(),
    };
    Ok(ExitCode::from(code?))
}
