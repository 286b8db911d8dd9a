//! `agent`: standard input and output for [the agent](crate::agent).

use std::{
    io::{BufReader, stdin},
    process::ExitCode,
};

use anyhow::Context as _;

use super::{
    exit::{Failure, SYSTEM},
    signals::{Second, StopSignals},
    terminal::for_programs,
};
use crate::{agent::serve, session::quit::Quit};

/// Serves until the input ends or a signal comes.
pub(super) fn run() -> Result<ExitCode, Failure> {
    let system = |error: anyhow::Error| Failure::new(SYSTEM, error);
    let quit = Quit::default();
    let asks = quit.clone();
    StopSignals::on_each(move || asks.ask(), Second::IsLikeTheFirst)
        .context("cannot listen for signals")
        .map_err(system)?;
    serve(BufReader::new(stdin()), for_programs(), &quit).context("cannot serve requests").map_err(system)?;
    Ok(ExitCode::SUCCESS)
}
