//! Reads requests and writes answers, a line each.

use std::{
    io::{self, BufRead, Read as _, Write},
    sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::Duration,
};

use super::Agent;
use crate::{control::answer::Greeting, session::quit::Quit};

/// Bytes of a request: a dose for each of 16,384 functions, and more.
const LONGEST: u64 = 16 << 20;
/// How often `quit` is polled.
const POLL: Duration = Duration::from_millis(50);

/// Serves until the input ends, the reader of the answers is gone, or `quit` is asked. Then detaches.
///
/// # Errors
/// The input cannot be read, the reading thread cannot start, or writing an answer fails although its reader
/// is still there.
pub(crate) fn serve(
    input: impl BufRead + Send + 'static,
    mut output: impl Write,
    quit: &Quit,
) -> Result<(), io::Error> {
    let (lines, asked) = sync_channel(1);
    // The thread ends with its input, or with the program: a read can wait for ever.
    thread::Builder::new().name("requests".to_owned()).spawn(move || read(input, &lines))?;
    let mut agent = Agent::new(quit.clone());
    let first = serde_json::to_string(&Greeting::own())?;
    let mut write = move |line: &str| match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))),
    };
    let mut has_reader = write(&first)?;
    while has_reader && !quit.is_asked() {
        match asked.recv_timeout(POLL) {
            Ok(line) => has_reader = write(&agent.answer(&line?))?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

fn read(mut input: impl BufRead, lines: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut line = Vec::new();
        let line = match input.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a request of more than {LONGEST} bytes"),
            )),
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => Ok(line),
            Err(error) => Err(error),
        };
        let is_over = line.is_err();
        if lines.send(line).is_err() || is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Cursor;

    use serde_json::{Value, json};

    use super::*;
    use crate::control::SCHEMA;

    fn answers(input: &str) -> Vec<Value> {
        let mut output = Vec::new();
        serve(Cursor::new(input.to_owned()), &mut output, &Quit::default()).unwrap();
        let lines = String::from_utf8(output).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn every_request_has_an_answer_and_errors_are_answers() {
        let said = answers(
            "{\"id\":1,\"do\":\"snapshot\"}\n\nnonsense\n{\"id\":[2],\"do\":\"start\"}\n{\"id\":3,\"do\":\"stop\"}",
        );
        assert_eq!(said[0]["schema"], SCHEMA);
        let kinds: Vec<_> = said[1..].iter().map(|line| (&line["id"], &line["error"]["kind"])).collect();
        let expected =
            [(json!(1), "state"), (json!(null), "request"), (json!([2]), "state"), (json!(3), "state")];
        assert_eq!(kinds.len(), 4, "{said:?}");
        for ((id, kind), expected) in kinds.into_iter().zip(expected) {
            assert_eq!((id, kind), (&expected.0, &json!(expected.1)));
        }
    }

    #[test]
    fn a_failed_preparation_is_answered_with_the_kind_of_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let line = format!(r#"{{"id":1,"do":"prepare","pids":[{}],"targets":["native:*:f"]}}"#, child.id());
        let said = answers(&line);
        assert_eq!(said[1]["error"]["kind"], "gone", "{said:?}");
    }

    #[test]
    fn it_ends_when_quit_is_asked() {
        let (reader, _writer) = io::pipe().unwrap();
        let quit = Quit::default();
        let asks = quit.clone();
        let thread = thread::spawn(move || asks.ask());
        serve(io::BufReader::new(reader), io::sink(), &quit).unwrap();
        thread.join().unwrap();
    }
}
