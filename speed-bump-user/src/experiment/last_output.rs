//! Keeps the last output of a command.
//!
//! A daemon that the command leaves behind may hold the same pipe for ever. So the output is taken when the
//! command has ended, not when the pipe is closed.

use std::{
    io::{self, Read},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::printable::{at_most, printable};

/// Bytes that are kept of the end of a stream: benchmarks print their results last.
const KEPT: usize = 64 << 10;
/// How often the reader checks whether the output should be taken.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Lines of the output of a failed command in its error.
const LINES_TOLD: usize = 5;
/// Characters of each of these lines.
const LONGEST_LINE: usize = 300;

/// The last lines of a text, as one printable line.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "it printed nothing".to_owned();
    }
    let last = lines.get(lines.len().saturating_sub(LINES_TOLD)..).unwrap_or_default();
    let told: Vec<String> = last.iter().map(|line| at_most(printable(line), LONGEST_LINE)).collect();
    told.join("; ")
}

/// A thread that reads a command's output. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct LastOutput {
    is_taken: Arc<AtomicBool>,
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl LastOutput {
    /// Starts to read a stream.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn read(stream: impl Read + AsFd + Send + 'static) -> io::Result<Self> {
        let is_taken = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_taken);
        let read = move || last_of(stream, &ends);
        let reader = thread::Builder::new().name("output".to_owned()).spawn(read)?;
        Ok(Self { is_taken, reader: Some(reader) })
    }

    /// The last output until now.
    pub(super) fn take(mut self) -> Vec<u8> {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Vec<u8>> {
        self.is_taken.store(true, Ordering::SeqCst);
        self.reader.take()?.join().ok()
    }
}

impl Drop for LastOutput {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Reads to the end of the stream, or, once the output should be taken, until nothing is left. Keeps the last
/// of it.
fn last_of(mut stream: impl Read + AsFd, is_taken: &AtomicBool) -> Vec<u8> {
    let (mut kept, mut piece, mut read_since) = (Vec::new(), [0; 4_096], 0);
    while read_since <= 2 * KEPT {
        // Check this first: then all earlier output is already in the pipe.
        let ends = is_taken.load(Ordering::SeqCst);
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&POLL)) {
            Ok(0) if ends => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                kept.extend_from_slice(piece.get(..count).unwrap_or_default());
                // A daemon may write for ever.
                read_since += if ends { count } else { 0 };
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if kept.len() > 2 * KEPT {
            kept.drain(..kept.len() - KEPT);
        }
    }
    kept.drain(..kept.len().saturating_sub(KEPT));
    kept
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{io::Write as _, time::Duration};

    use super::*;

    #[test]
    fn the_last_is_kept() {
        let (from, mut to) = io::pipe().unwrap();
        let said = LastOutput::read(from).unwrap();
        to.write_all(&vec![b'a'; 5 * KEPT]).unwrap();
        to.write_all(b"the end").unwrap();
        drop(to);
        let kept = said.take();
        assert!(kept.ends_with(b"the end") && kept.len() == KEPT);
    }

    #[test]
    fn output_of_other_processes_is_not_waited_for() {
        let (from, mut to) = io::pipe().unwrap();
        let said = LastOutput::read(from).unwrap();
        to.write_all(b"done").unwrap();
        assert_eq!(said.take(), b"done");
        assert_eq!(to.write_all(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn the_last_lines_are_told_as_far_as_they_can_be_printed() {
        assert_eq!(last_lines(" \n\n"), "it printed nothing");
        assert_eq!(last_lines("1\n2\n3\n4\n5\n 6 \n"), "2; 3; 4; 5; 6");
        assert_eq!(last_lines("a\x1b[2Jb"), "a\\x1b[2Jb");
        let long = last_lines(&"x".repeat(5_000));
        assert!(long.chars().count() <= LONGEST_LINE, "{long}");
    }

    #[test]
    fn endless_output_is_not_read_for_ever() {
        let (from, mut to) = io::pipe().unwrap();
        let said = LastOutput::read(from).unwrap();
        let says = thread::spawn(move || while to.write_all(b"again\n").is_ok() {});
        thread::sleep(Duration::from_millis(50));
        assert_eq!(said.take().len(), KEPT);
        says.join().unwrap();
    }
}
