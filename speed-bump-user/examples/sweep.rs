//! Finds out which functions of a running service matter, and says so:
//!
//! `sudo target/debug/examples/sweep PID SECONDS`

use std::{error::Error, time::Duration};

use speed_bump_user::{
    experiment::sweep::{Observer, Options, Sweep},
    report::text::{Style, render},
};

/// Says what preparation does. A program that wants to hear nothing passes `&mut ()`.
struct Lines;

impl Observer for Lines {
    fn line(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, seconds] = arguments.as_slice() else { return Err("give a PID and seconds".into()) };
    let sweep = Sweep::new(Options { time: Duration::from_secs(seconds.parse()?), ..Options::default() });
    let experiment = sweep.run(&[pid.parse()?], &mut Lines)?;
    print!("{}", render(&experiment, Style::PLAIN));
    Ok(())
}
