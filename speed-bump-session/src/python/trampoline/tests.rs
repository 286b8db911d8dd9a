//! Tests with known templates, and with the stacks of real processes.

#![allow(clippy::unwrap_used)]

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::FileExt as _,
};

use super::*;
use crate::python::{perf_map::PerfMapFollower, pythons, root::ProcessRoot};

#[test]
fn the_call_of_known_templates_is_found() {
    // sub rsp, 8; call rdx; add rsp, 8; ret
    let of_312 = [0x48, 0x83, 0xec, 8, 0xff, 0xd2, 0x48, 0x83, 0xc4, 8, 0xc3];
    // endbr64; push rbp; mov rbp, rsp; call rdx; pop rbp; ret
    let of_314 = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd2, 0x5d, 0xc3];
    assert_eq!(return_offset(&of_312), Ok(6));
    assert_eq!(return_offset(&of_314), Ok(10));
    // call [rdx]; ret
    assert_eq!(return_offset(&[0xff, 0x12, 0xc3]), Ok(2));
}

#[test]
fn anything_else_is_refused() {
    for (code, problem) in [
        (&[][..], Problem::Calls(0)),
        (&[0xc3], Problem::Calls(0)),
        (&[0xff, 0xd2, 0xff, 0xd2, 0xc3], Problem::Calls(2)),
        (&[0xff, 0xd2], Problem::NotCode),
        // A direct call, a jump over the call, a cut instruction, an invalid one.
        (&[0xe8, 0, 0, 0, 0, 0xc3], Problem::NotCode),
        (&[0xeb, 2, 0xff, 0xd2, 0xc3], Problem::NotCode),
        (&[0x48, 0x83], Problem::NotCode),
        (&[0x06, 0xff, 0xd2, 0xc3], Problem::NotCode),
        (&[0; 16], Problem::Calls(0)),
    ] {
        assert_eq!(return_offset(code), Err(problem), "{code:x?}");
    }
}

fn entry(size: u64) -> PerfMapEntry {
    let address = VirtualAddress(0x1000);
    PerfMapEntry { address, size, qualname: "K.m".to_owned(), filename: "/x.py".to_owned() }
}

#[test]
fn errors_name_the_function_and_the_address() {
    let mut trampolines = Trampolines::default();
    let unreadable = trampolines.return_address(&entry(4), |_, _| Err(io::ErrorKind::NotFound.into()));
    let zeros = trampolines.return_address(&entry(4), |_, _| Ok(()));
    let too_long = trampolines.return_address(&entry(u64::MAX), |_, _| unreachable!("not to be read"));
    for result in [unreadable, zeros, too_long] {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("K.m") && message.contains("0x1000"), "{message}");
    }
}

#[test]
fn each_trampoline_is_checked_against_the_template() {
    let code = [0x48, 0x83, 0xec, 8, 0xff, 0xd2, 0x48, 0x83, 0xc4, 8, 0xc3];
    let mut trampolines = Trampolines::default();
    let copy = |_, buffer: &mut [u8]| {
        buffer.copy_from_slice(&code);
        Ok(())
    };
    assert_eq!(trampolines.return_address(&entry(11), copy).unwrap(), VirtualAddress(0x1006));
    assert!(trampolines.return_address(&entry(11), |_, _| Ok(())).is_err());
    assert_eq!(trampolines.return_address(&entry(11), copy).unwrap(), VirtualAddress(0x1006));
}

/// A program that sleeps within three nested calls.
const NESTED: &str = r#"
import time
class K:
    def method(self): return inner()
def outer(): return K().method()
def inner():
    print("ready", flush=True)
    time.sleep(1000)
outer()
"#;

/// A process is blocked inside nested Python calls. The process's stack must have the return addresses that
/// we compute, with the innermost function's at the lowest address. The stack must have no other address
/// after the start of these trampolines.
#[test]
fn return_addresses_lie_on_the_stacks_of_real_processes() {
    for python in pythons::with_trampolines() {
        let running = python.start(&["-X", "perf"], NESTED);
        let pid = running.pid();
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        let read = |address: VirtualAddress, buffer: &mut [u8]| memory.read_exact_at(buffer, address.0);

        let mut follower = PerfMapFollower::new(
            ProcessRoot::of_process(pid).unwrap(),
            pid.get(),
            &[],
            &crate::bounds::Budget::new(1_000_000),
        );
        let everything = || Ok(vec![VirtualAddress(0)..VirtualAddress(u64::MAX)]);
        let entries = follower.poll(everything).unwrap();
        fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
        let mut trampolines = Trampolines::default();
        let mut known = HashMap::new();
        for entry in &entries {
            let address = trampolines.return_address(entry, read).unwrap();
            assert!(known.insert(address.0, entry).is_none(), "{python}");
        }

        let words = stack(pid, &memory);
        let names = ["inner", "K.method", "outer"];
        for entry in entries.iter().filter(|entry| names.contains(&entry.qualname.as_str())) {
            let inside = entry.address.0 + 1..entry.address.0 + entry.size;
            for word in words.iter().filter(|word| inside.contains(word)) {
                assert!(known.contains_key(word), "{python}: {word:#x} in {} is another", entry.qualname);
            }
        }
        let seen: Vec<_> =
            words.iter().filter_map(|word| known.get(word)).map(|entry| entry.qualname.as_str()).collect();
        let place = |name: &str| seen.iter().position(|seen| *seen == name);
        let order = names.map(place);
        assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{python}: {seen:?}");
    }
}

/// The words in use on the main thread's stack, from the top.
fn stack(pid: crate::units::Pid, memory: &File) -> Vec<u64> {
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    // For a blocked thread the file has: number, six arguments, stack pointer, instruction pointer. The
    // thread may not have reached its system call yet.
    let top = loop {
        let shown = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        let fields: Vec<_> = shown.split_whitespace().collect();
        if fields.len() == 9 {
            break hexadecimal(fields[7]);
        }
        std::thread::yield_now();
    };
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let range = maps.lines().find(|line| line.ends_with("[stack]")).unwrap().split(' ').next().unwrap();
    let bottom = hexadecimal(range.split_once('-').unwrap().1);
    let mut bytes = vec![0; usize::try_from(bottom - top).unwrap()];
    memory.read_exact_at(&mut bytes, top).unwrap();
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}
