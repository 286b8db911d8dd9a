//! Sends and receives lines over a socket. We limit the length of the lines and the time, because the other
//! end may send anything, at any pace.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

/// The most bytes of a line: enough for a pattern with options, or for the description of some thousand
/// targets.
pub(super) const LONGEST: usize = 4 << 20;
/// The number of bytes in one read.
const PART: usize = 64 << 10;

/// Lines to and from the other end of a socket. One time limit applies to all of them together.
#[derive(Debug)]
pub(super) struct Lines<'s> {
    stream: &'s UnixStream,
    until: Instant,
    /// Bytes that came after the end of the last line.
    rest: Vec<u8>,
}

impl<'s> Lines<'s> {
    pub(super) fn new(stream: &'s UnixStream, patience: Duration) -> Self {
        Self { stream, until: Instant::now() + patience, rest: Vec::new() }
    }

    /// Restarts the time limit.
    pub(super) fn wait_for(&mut self, patience: Duration) {
        self.until = Instant::now() + patience;
    }

    /// The next line, without its end. If the other end closes the connection, returns the part of a line
    /// that came before.
    ///
    /// # Errors
    /// The system's error; `TimedOut`; `InvalidData` for a line longer than [`LONGEST`].
    pub(super) fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            let new = self.rest.get(searched..).unwrap_or_default();
            if let Some(end) = new.iter().position(|byte| *byte == b'\n') {
                let behind = self.rest.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.rest, behind);
                line.pop();
                return Ok(line);
            }
            searched = self.rest.len();
            if searched > LONGEST {
                let text = format!("a line of more than {LONGEST} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            self.stream.set_read_timeout(Some(self.left()?))?;
            let mut stream = self.stream;
            let mut part = vec![0; PART];
            match stream.read(&mut part) {
                Ok(0) => return Ok(std::mem::take(&mut self.rest)),
                Ok(read) => self.rest.extend_from_slice(part.get(..read).unwrap_or_default()),
                Err(error) => is_late(error)?,
            }
        }
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The system's error; `TimedOut`.
    pub(super) fn write(&mut self, line: &str) -> io::Result<()> {
        let text = format!("{line}\n");
        let mut left = text.as_bytes();
        while !left.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            let mut stream = self.stream;
            match stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) => is_late(error)?,
            }
        }
        Ok(())
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

/// Returns `Ok` if the caller may try again within the time limit.
fn is_late(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::thread;

    use super::*;

    #[test]
    fn lines_come_whole_and_in_their_order() {
        let (here, there) = UnixStream::pair().unwrap();
        let writer = thread::spawn(move || {
            for part in ["fi", "rst\nsec", "ond\n\nlast"] {
                (&there).write_all(part.as_bytes()).unwrap();
            }
        });
        let mut lines = Lines::new(&here, Duration::from_secs(10));
        writer.join().unwrap();
        let read: Vec<Vec<u8>> = (0..5).map(|_| lines.read().unwrap()).collect();
        assert_eq!(read, [&b"first"[..], b"second", b"", b"last", b""]);
    }

    #[test]
    fn a_line_has_an_end_in_bytes_and_in_time() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut lines = Lines::new(&here, Duration::from_millis(1));
        assert_eq!(lines.read().unwrap_err().kind(), io::ErrorKind::TimedOut);
        lines.wait_for(Duration::from_secs(60));
        let writer = thread::spawn(move || (&there).write_all(&vec![b' '; LONGEST + PART]));
        assert_eq!(lines.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(here);
        // The reader may not have read the whole line.
        let _ = writer.join().unwrap();
    }
}
