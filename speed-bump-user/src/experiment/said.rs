//! What a command says: the last of it is kept.
//!
//! A daemon that the command leaves behind holds the same pipe, perhaps for ever. So what was said is taken
//! when the command has ended, not when the pipe has.

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

/// Of a stream's end so much is kept: what benchmarks say, they say last.
const KEPT: usize = 64 << 10;
/// How often the reader looks whether what was said is to be taken.
const LOOKS: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A thread that reads what a command says. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Said {
    is_taken: Arc<AtomicBool>,
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl Said {
    /// Reads from now on.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn of(stream: impl Read + AsFd + Send + 'static) -> io::Result<Self> {
        let is_taken = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_taken);
        let read = move || last_of(stream, &ends);
        let reader = thread::Builder::new().name("output".to_owned()).spawn(read)?;
        Ok(Self { is_taken, reader: Some(reader) })
    }

    /// The last of what was said until now.
    pub(super) fn take(mut self) -> Vec<u8> {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Vec<u8>> {
        self.is_taken.store(true, Ordering::SeqCst);
        self.reader.take()?.join().ok()
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Reads to the end, or once it is to be taken until nothing is there, and keeps the last of it.
fn last_of(mut stream: impl Read + AsFd, is_taken: &AtomicBool) -> Vec<u8> {
    let (mut kept, mut piece, mut read_since) = (Vec::new(), [0; 4_096], 0);
    while read_since <= 2 * KEPT {
        // First: what is said before it is taken is in the pipe then.
        let ends = is_taken.load(Ordering::SeqCst);
        match poll(&mut [PollFd::new(&stream, PollFlags::IN)], Some(&LOOKS)) {
            Ok(0) if ends => break,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => break,
        }
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                kept.extend_from_slice(piece.get(..count).unwrap_or_default());
                // A daemon may go on for ever.
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
        let said = Said::of(from).unwrap();
        to.write_all(&vec![b'a'; 5 * KEPT]).unwrap();
        to.write_all(b"the end").unwrap();
        drop(to);
        let kept = said.take();
        assert!(kept.ends_with(b"the end") && kept.len() == KEPT);
    }

    #[test]
    fn what_others_may_still_say_is_not_waited_for() {
        let (from, mut to) = io::pipe().unwrap();
        let said = Said::of(from).unwrap();
        to.write_all(b"done").unwrap();
        assert_eq!(said.take(), b"done");
        assert_eq!(to.write_all(b"more").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn what_is_said_for_ever_is_not_heard_for_ever() {
        let (from, mut to) = io::pipe().unwrap();
        let said = Said::of(from).unwrap();
        let says = thread::spawn(move || while to.write_all(b"again\n").is_ok() {});
        thread::sleep(Duration::from_millis(50));
        assert_eq!(said.take().len(), KEPT);
        says.join().unwrap();
    }
}
