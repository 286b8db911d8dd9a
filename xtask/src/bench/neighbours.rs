//! Processes that keep processors busy beside the measured one.

use std::{
    process::{Child, Command, Stdio},
    thread,
};

use anyhow::{Context as _, Result};
use clap::Args;

/// Counts, and checks now and then whether its parent still exists.
const LOOP: &str =
    "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done 2>/dev/null";

/// How many neighbours there are.
#[derive(Args, Clone, Copy)]
pub(super) struct Busy {
    /// This many other processes keep processors busy meanwhile.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    busy: usize,
    /// Keep idle processors from going to sleep: one process for each processor, which runs only if nothing
    /// else wants to (`SCHED_IDLE`).
    #[arg(long)]
    awake: bool,
}

/// Running neighbours. Dropping this ends them.
#[derive(Debug, Default)]
pub(super) struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts them.
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
