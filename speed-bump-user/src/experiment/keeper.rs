//! Ends the user's commands when this program ends, for whatever reason: a small shell that knows their
//! process groups, and whose input ends with this program. A parent-death signal would only reach the shell
//! that starts a command, and not the processes that it has started.

use std::{
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use rustix::process::Pid;

/// Reads which groups begin and end, and kills the remaining ones at the end of its input.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign in
        +) groups="$groups$group " ;;
        -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
    esac
done
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// How a command that leads a process group begins: it announces itself on its first input, the keeper's
/// pipe, and then reads nothing. So the keeper knows it from the first moment.
pub(super) const BEGINS: &str = r#"echo "+ $$" >&0; exec /bin/sh -c "$1" < /dev/null"#;

/// The shell, one for all commands.
static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);

struct Keeper {
    child: Child,
    input: ChildStdin,
}

impl Keeper {
    fn start() -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        // The shell has a process group of its own, so that signals of a terminal reach only this program.
        shell.args(["-c", SCRIPT]).current_dir("/").process_group(0);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().ok_or_else(|| io::Error::other("it has no input"))?;
        Ok(Self { child, input })
    }

    fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

/// The first input of a command that begins with [`BEGINS`].
///
/// # Errors
/// The shell cannot be started.
pub(super) fn input() -> io::Result<Stdio> {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = keeper.take();
    // The shell may have been killed.
    if !running.as_mut().is_some_and(Keeper::is_running) {
        running = None;
    }
    let running = keeper.insert(running.map_or_else(Keeper::start, Ok)?);
    Ok(running.input.as_fd().try_clone_to_owned()?.into())
}

/// Tells the shell that a command has ended with its process group.
pub(super) fn forget(group: Pid) {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(keeper) = keeper.as_mut() {
        // If the shell was killed, it keeps no group.
        let _ = keeper.input.write_all(format!("- {}\n", group.as_raw_nonzero()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn groups_that_are_left_when_its_input_ends_are_killed() {
        let mut keeper = Keeper::start().unwrap();
        let sleeps = || Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let mut groups = [sleeps(), sleeps(), sleeps()];
        for group in &groups {
            keeper.input.write_all(format!("+ {}\n", group.id()).as_bytes()).unwrap();
        }
        keeper.input.write_all(format!("- {}\n- 1\n", groups[1].id()).as_bytes()).unwrap();
        let Keeper { mut child, input } = keeper;
        drop(input);
        assert!(child.wait().unwrap().success());
        let forgotten = groups[1].try_wait().unwrap();
        groups[1].kill().unwrap();
        assert_eq!(forgotten, None);
        for group in &mut groups {
            assert_eq!(group.wait().unwrap().signal(), Some(9));
        }
    }
}
