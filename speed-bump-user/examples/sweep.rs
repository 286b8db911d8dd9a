//! Finds out which functions of a running service matter. A unit of work is a call of TARGET:
//!
//! `sudo target/debug/examples/sweep PID SECONDS '*/app.py:handle'`

use std::{error::Error, time::Duration};

use speed_bump_user::{Observer, Sweep, SweepOptions, UnitSource, report::text};

/// Prints what the preparation does. A program that does not want this passes `&mut ()`.
struct Lines;

impl Observer for Lines {
    fn line(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, seconds, unit] = arguments.as_slice() else {
        return Err("give a PID, seconds, a target".into());
    };
    let units = vec![UnitSource::Progress(unit.clone())];
    let time = Duration::from_secs(seconds.parse()?);
    let sweep = Sweep::new(SweepOptions { units, time, ..SweepOptions::default() });
    let experiment = sweep.run(&[pid.parse()?], &mut Lines)?;
    print!("{}", text::render(&experiment, text::Style::PLAIN));
    Ok(())
}
