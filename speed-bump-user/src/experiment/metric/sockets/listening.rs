//! Finds the sockets on which processes listen.
//!
//! We copy each descriptor (`pidfd_getfd(2)`), and ask the copy. So the answer comes from the kernel, in any
//! network namespace, and includes MPTCP, whose listening sockets no list of /proc has under the process's
//! own inode.

use std::{
    collections::{BTreeSet, HashSet},
    fmt, io,
    net::SocketAddr,
    os::{
        fd::{AsFd as _, OwnedFd},
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{self, UnixListener},
        },
    },
};

use rustix::{
    fs::OFlags,
    net::{
        AddressFamily, SocketType, getsockname,
        sockopt::{socket_acceptconn, socket_domain, socket_type},
    },
};
use speed_bump_abi::UnixName;

use super::SocketsError;
use crate::{
    experiment::descriptors::links, printable::printable, process::Process,
    sys::remote_descriptor::Descriptors,
};

/// The most sockets of a process that are inspected: those with the lowest numbers, which are usually the
/// oldest. A service opens its listening sockets before it accepts.
const SOCKETS: usize = 65_536;

/// TCP ports and unix names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    ports: BTreeSet<u16>,
    names: HashSet<UnixName>,
}

impl Listening {
    /// Reads what these processes listen on now.
    pub(super) fn read(processes: &[Process]) -> Result<Self, SocketsError> {
        let mut all = Self::default();
        for process in processes {
            let pid = process.pid();
            match all.inspect(process) {
                // An ended worker listens on nothing.
                Err(error) if process.is_alive() => return Err(SocketsError::Descriptors { pid, error }),
                _ => {}
            }
        }
        Ok(all)
    }

    /// TCP ports.
    pub fn ports(&self) -> &BTreeSet<u16> {
        &self.ports
    }

    /// Names of unix sockets.
    pub(super) fn names(&self) -> &HashSet<UnixName> {
        &self.names
    }

    /// Whether there is no listening socket.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.names.is_empty()
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.ports.extend(other.ports);
        self.names.extend(other.names);
    }

    fn inspect(&mut self, process: &Process) -> io::Result<()> {
        let Some(descriptors) = Descriptors::of_thread(process.as_fd(), process.pid(), process.pid())? else {
            return Ok(());
        };
        let folder = process.open_entry("fd", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut seen = 0;
        // A socket that was closed in the meantime does not listen.
        for link in links(&folder)? {
            let (number, link) = link?;
            if !link.to_bytes().starts_with(b"socket:[") {
                continue;
            }
            seen += 1;
            if seen > SOCKETS {
                let pid = process.pid();
                tracing::warn!(
                    "process {pid} has more than {SOCKETS} sockets: the others were not inspected"
                );
                break;
            }
            match descriptors.take(number) {
                Ok(socket) => self.add(socket),
                Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds the address of a socket, if it listens.
    fn add(&mut self, socket: OwnedFd) {
        let is_listening = socket_acceptconn(&socket) == Ok(true);
        if !is_listening || socket_type(&socket) != Ok(SocketType::STREAM) {
            return;
        }
        match socket_domain(&socket) {
            Ok(AddressFamily::INET | AddressFamily::INET6) => {
                let address = getsockname(&socket).and_then(SocketAddr::try_from);
                self.ports.extend(address.map(|address| address.port()));
            }
            Ok(AddressFamily::UNIX) => {
                // Do not use rustix's function, which panics at a path of 108 bytes (1.1.6).
                let address = UnixListener::from(socket).local_addr();
                self.names.extend(address.ok().as_ref().and_then(unix_name));
            }
            _ => {}
        }
    }
}

/// The name as the kernel keeps it.
fn unix_name(address: &net::SocketAddr) -> Option<UnixName> {
    let (start, name): (usize, _) = match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => (0, path.as_os_str().as_bytes()),
        (None, Some(name)) => (1, name),
        (None, None) => return None,
    };
    let mut bytes = [0; UnixName::BYTES];
    bytes.get_mut(start..start.checked_add(name.len())?)?.copy_from_slice(name);
    (!is_of_multiprocessing(start == 0, name)).then_some(UnixName(bytes))
}

/// Whether Python's `multiprocessing` made this name for its own listener (`arbitrary_address` in
/// `Lib/multiprocessing/connection.py`, CPython 3.8 to 3.15). A parent and its workers, such as torch's
/// loaders, pass descriptors through these sockets, which are no requests.
fn is_of_multiprocessing(is_path: bool, name: &[u8]) -> bool {
    const LISTENER: &[u8] = b"listener-";
    let mut parts = name.rsplit(|byte| *byte == b'/');
    let Some(rest) = parts.next().and_then(|part| part.strip_prefix(LISTENER)) else { return false };
    if is_path {
        return parts.next().is_some_and(|folder| folder.starts_with(b"pymp-"));
    }
    // The rest of the name is a process and a number.
    rest.split(|byte| *byte == b'-').count() == 2
        && rest.iter().all(|byte| *byte == b'-' || byte.is_ascii_digit())
}

impl fmt::Display for Listening {
    /// `TCP port 80, TCP port 443, /run/app.sock, @abstract`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = self.ports.iter().map(|port| format!("TCP port {port}"));
        let mut names: Vec<String> = self.names.iter().map(shown).collect();
        names.sort_unstable();
        f.write_str(&ports.chain(names).collect::<Vec<_>>().join(", "))
    }
}

/// A name for the user: an abstract one begins with `@`.
fn shown(name: &UnixName) -> String {
    let end = name.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let mut bytes = name.0.get(..end).unwrap_or_default().to_vec();
    if let Some(first) = bytes.first_mut()
        && *first == 0
    {
        *first = b'@';
    }
    printable(String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustix::net::{SocketAddrUnix, SocketFlags, bind, listen, socket_with};

    use super::*;

    fn listening(socket: OwnedFd) -> Listening {
        let mut listening = Listening::default();
        listening.add(socket);
        listening
    }

    #[test]
    fn listeners_of_multiprocessing_are_ignored() {
        for (is_path, name, is_it) in [
            (true, "/tmp/pymp-xz7t9__e/listener-6vqys4e4", true),
            (false, "listener-4711-0", true),
            (true, "/tmp/listener-6vqys4e4", false),
            (true, "listener-1", false),
            (true, "/run/pymp-x/app.sock", false),
            (false, "app", false),
            (false, "listener-api", false),
            (true, "", false),
        ] {
            assert_eq!(is_of_multiprocessing(is_path, name.as_bytes()), is_it, "{name}");
        }
    }

    #[test]
    fn a_listening_socket_has_a_port_or_a_name() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        assert_eq!(listening(tcp.into()).to_string(), format!("TCP port {port}"));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a\nb");
        let shown = listening(UnixListener::bind(&path).unwrap().into()).to_string();
        assert_eq!(shown, printable(path.display()));

        let name = format!("speed-bump {}", std::process::id());
        let address = net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let listening = listening(listener.into());
        assert_eq!(listening.to_string(), format!("@{name}"));
        assert!(listening.names().iter().all(|it| it.0.starts_with(format!("\0{name}\0").as_bytes())));
    }

    #[test]
    fn other_sockets_are_ignored() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let (one, other) = net::UnixStream::pair().unwrap();
        let packets =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let name = format!("speed-bump packets {}", std::process::id());
        bind(&packets, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&packets, 1).unwrap();
        for socket in [client.into(), accepted.into(), one.into(), other.into(), packets] {
            assert!(listening(socket).is_empty());
        }
    }

    #[test]
    fn the_longest_path_fits() {
        let folder = tempfile::tempdir().unwrap();
        let longest = format!("{}/{}", folder.path().display(), "a".repeat(108));
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        // This path has no zero byte at its end.
        bind(&socket, &SocketAddrUnix::new(&longest[..108]).unwrap()).unwrap();
        listen(&socket, 1).unwrap();
        assert_eq!(listening(socket).to_string(), longest[..108]);
    }
}
