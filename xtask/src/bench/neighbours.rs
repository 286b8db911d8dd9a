//! Processes that keep processors busy beside what is measured.

use std::{
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use clap::Args;

/// Counts, and looks now and then whether who started it is still there.
const LOOP: &str =
    "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null";

/// How many there are to be.
#[derive(Args, Clone, Copy)]
pub(super) struct Busy {
    /// So many other processes keep processors busy meanwhile.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    busy: usize,
    /// Keep idle processors from going to sleep: with processes that run while nobody else wants to
    /// (`SCHED_IDLE`), one for each processor.
    #[arg(long)]
    awake: bool,
}

/// Running neighbours. Dropping this ends them.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts so many.
    pub(super) fn start(Busy { busy, awake }: Busy) -> Result<Self> {
        println!("{busy} busy neighbours");
        let mut neighbours = Self::default();
        for _ in 0..busy {
            neighbours.add(&mut Command::new("sh"))?;
        }
        if awake {
            println!("idle processors are kept awake");
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                neighbours.add(Command::new("chrt").args(["--idle", "0", "sh"]))?;
            }
        }
        Ok(neighbours)
    }

    fn add(&mut self, shell: &mut Command) -> Result<()> {
        let command = shell.args(["-c", LOOP]).stdin(Stdio::null());
        self.0.push(command.spawn().context("cannot start a busy neighbour")?);
        Ok(())
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for neighbour in &mut self.0 {
            // Both fail only when it has been reaped already.
            let _ = neighbour.kill();
            let _ = neighbour.wait();
        }
    }
}
