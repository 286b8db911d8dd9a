//! `run` on a terminal: Ctrl-C, Ctrl-Z and `fg`, and the background, as with the command alone.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, process::Command};

use speed_bump_testing::{pythons, pythons::Form, session::obstacle, skip, tool};

use crate::{command::script, turn::beside_others};

/// A session leader with a terminal of its own, which does job control as a shell does, and says what it
/// sees.
const SHELL: &str = r#"
import json, os, pty, select, signal, sys, termios, time
mode, command = sys.argv[1], sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    # The shell: a job in a process group of its own, in the foreground.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        if mode != 'background':
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)
    try:
        os.setpgid(job, job)
    except OSError:
        pass  # It has executed already, after it did so itself.
    said = []
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            break
        said.append('stopped %d' % os.WSTOPSIG(status))
        os.tcsetpgrp(0, os.getpgrp())
        print('SHELL stopped', flush=True)
        # `fg`
        time.sleep(0.3)
        os.tcsetpgrp(0, job)
        os.killpg(job, signal.SIGCONT)
    os.tcsetpgrp(0, os.getpgrp())
    exited = os.WIFEXITED(status)
    said.append('exit %d' % os.WEXITSTATUS(status) if exited else 'signal %d' % os.WTERMSIG(status))
    print('SHELL ' + json.dumps(said), flush=True)
    os._exit(0)
output, pressed = b'', False
deadline = time.monotonic() + 60
key = {'interrupt': b'\x03', 'quit': b'\x1c', 'suspend': b'\x1a'}.get(mode)
while time.monotonic() < deadline:
    if select.select([terminal], [], [], 0.1)[0]:
        try:
            output += os.read(terminal, 65536)
        except OSError:
            break
    if key and not pressed and b'READY' in output:
        os.write(terminal, key)
        pressed = True
else:
    os.kill(pid, signal.SIGKILL)
sys.stdout.write(output.decode())
"#;

/// Counts what reaches it; ends by itself.
const PROGRAM: &str = r#"
import os, signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGCONT):
    signal.signal(number, lambda number, _: seen.append(int(number)))
print('READY', flush=True)
end = time.monotonic() + 20
want = int(sys.argv[1])
while want and want not in seen and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.5)
print('SEEN', sorted(seen), flush=True)
os._exit(42)
"#;

/// What the shell and the program say, where this is done on the terminal; `expected` is a signal that the
/// program waits for.
fn on_terminal(mode: &str, expected: i32) -> Option<String> {
    let python = pythons().iter().rfind(|python| python.form == Form::Direct)?;
    let folder = tempfile::tempdir().unwrap();
    let (shell, program) =
        (script(folder.path(), "shell.py", SHELL), script(folder.path(), "program.py", PROGRAM));
    let targets = folder.path().join("targets.txt");
    fs::write(&targets, "*/program.py:*\n").unwrap();
    let mut command = Command::new(python.interpreter().get_program());
    command.arg(shell).arg(mode).arg(tool::path().unwrap());
    command.args(["run", "--quiet", "--delay", "0", "--targets"]).arg(targets).arg("--");
    command.arg(python.interpreter().get_program()).arg(program).arg(expected.to_string());
    let output = command.output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check(mode: &str, expected: i32, seen: &str, shell: &str) {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let _turn = beside_others();
    let Some(said) = on_terminal(mode, expected) else {
        return skip!("this machine has no Python 3.8 or newer");
    };
    assert!(said.contains(&format!("SEEN {seen}")), "{said}");
    assert!(said.contains(&format!("SHELL {shell}")), "{said}");
}

#[test]
fn a_command_on_a_terminal_ends_with_its_own_code() {
    check("foreground", 0, "[]", "[\"exit 42\"]");
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    check("interrupt", libc::SIGINT, &format!("[{}]", libc::SIGINT), "[\"exit 42\"]");
}

#[test]
fn ctrl_backslash_reaches_the_command_once() {
    check("quit", libc::SIGQUIT, &format!("[{}]", libc::SIGQUIT), "[\"exit 42\"]");
}

#[test]
fn ctrl_z_stops_the_tool_and_the_command_and_fg_continues_both() {
    let shell = format!("[\"stopped {}\", \"exit 42\"]", libc::SIGTSTP);
    check("suspend", libc::SIGCONT, &format!("[{}]", libc::SIGCONT), &shell);
}

#[test]
fn a_command_in_the_background_runs_to_its_end() {
    check("background", 0, "[]", "[\"exit 42\"]");
}
