//! `report` for a session with `--times`: a profile.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};

use super::{
    super::{
        args::ReportArgs,
        exit::{Failure, USAGE},
        outputs::{output_at, write_pstats},
        terminal::print_as_is,
    },
    Recorded, read,
};
use crate::report::{
    profile::{Edges, Printing, Profile, print, print_edges},
    session::RecordedSession,
};

/// Prints the profile, or writes it for other programs.
pub(super) fn run(arguments: &ReportArgs, session: &RecordedSession) -> Result<ExitCode, Failure> {
    let is_for_sweeps = arguments.html.is_some()
        || arguments.trace_events.is_some()
        || arguments.markdown
        || arguments.csv
        || arguments.json
        || !arguments.fail_if.is_empty();
    if is_for_sweeps {
        let text = "--html, --trace-events, --markdown, --csv, --json and --fail-if are for sweeps";
        return Err(Failure::new(USAGE, anyhow!(text)));
    }
    let usage = |error: anyhow::Error| Failure::new(USAGE, error);
    let profile_of = |session: &RecordedSession, name: &std::path::Path| {
        Profile::from_session(session).with_context(|| name.display().to_string()).map_err(usage)
    };
    let mut profile =
        profile_of(session, arguments.files.first().map_or("-".as_ref(), |path| path.as_path()))?;
    for path in &arguments.profile.add {
        match read(path, &arguments.rules).map_err(usage)? {
            Recorded::Session(session) => profile.add(&profile_of(&session, path)?),
            Recorded::Sweep(_) => {
                return Err(usage(anyhow!("{} is a sweep: --add needs a session", path.display())));
            }
        }
    }
    profile = profile.with_callers();
    if arguments.profile.strip_dirs {
        profile = profile.without_folders();
    }
    if let Some(path) = &arguments.profile.pstats {
        write_pstats(&output_at(path)?, &profile)?;
        return Ok(ExitCode::SUCCESS);
    }
    let printing = Printing {
        sort: arguments.profile.sort.clone(),
        reverse: arguments.profile.reverse,
        limits: arguments.profile.limits.clone(),
    };
    let asked = [(&arguments.profile.callers, Edges::Callers), (&arguments.profile.callees, Edges::Callees)];
    let asked: Vec<_> =
        asked.into_iter().filter_map(|(which, edges)| Some((which.clone()?, edges))).collect();
    if asked.is_empty() {
        print_as_is(print(&profile, &printing).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    profile.check_callers().context("--callers and --callees").map_err(usage)?;
    let texts = asked.into_iter().map(|(which, edges)| {
        let limits = std::iter::once(which).chain(printing.limits.iter().cloned()).collect();
        print_edges(&profile, edges, &Printing { limits, ..printing.clone() }, usize::MAX)
    });
    print_as_is(texts.collect::<Vec<_>>().join("\n\n").trim_end());
    Ok(ExitCode::SUCCESS)
}
