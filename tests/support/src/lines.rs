//! The lines that a program prints; waiting for one has a time limit.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{
        Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::wait::{PATIENCE, deadline};

/// What a program prints, read on a thread of its own: the program never waits for the test, and the test's
/// waiting ends.
#[derive(Debug)]
pub struct Lines(Mutex<Receiver<String>>);

impl Lines {
    /// Reads to the end, or until there is no receiver for the lines.
    pub fn read(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self(Mutex::new(lines))
    }

    /// The next line. That there is none is an error, be it that the program ended or that it says nothing.
    pub fn line(&self) -> Result<String> {
        match self.line_by(deadline(PATIENCE)) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("the program says nothing for {PATIENCE:?} or longer"),
            Err(RecvTimeoutError::Disconnected) => bail!("the program has closed its output, or ended"),
        }
    }

    /// Whether lines come that were not there before.
    pub fn go_on(&self) -> Result<()> {
        self.skip();
        (0..3).try_for_each(|_| self.line().map(drop))
    }

    /// Forgets the lines that are there, those on their way among them.
    pub fn skip(&self) {
        thread::sleep(Duration::from_millis(5));
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while lines.try_recv().is_ok() {}
    }

    pub(crate) fn line_by(&self, deadline: Instant) -> Result<String, RecvTimeoutError> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use super::*;

    /// What a program has printed, and whether all of it was read.
    struct Printed(&'static [u8], Arc<AtomicBool>);

    impl Read for Printed {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.read(buffer)?;
            // Lines are sent before more is read.
            self.1.fetch_or(count == 0, Ordering::SeqCst);
            Ok(count)
        }
    }

    #[test]
    fn lines_come_one_by_one_until_the_end() {
        let lines = Lines::read(&b"one\ntwo"[..]);
        assert_eq!([lines.line().unwrap(), lines.line().unwrap()], ["one", "two"]);
        assert!(lines.line().unwrap_err().to_string().contains("has closed its output"));
    }

    #[test]
    fn what_was_there_does_not_count_as_going_on() {
        let is_read = Arc::new(AtomicBool::new(false));
        let lines = Lines::read(Printed(b"1\n2\n3\n4\n", Arc::clone(&is_read)));
        while !is_read.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(lines.go_on().is_err());
    }
}
