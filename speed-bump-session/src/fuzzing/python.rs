//! Fuzzes what a Python process controls: the block that it shares with us, its perf map, and its source
//! files.

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions},
    io::Write as _,
    mem::{offset_of, size_of},
    ops::Range,
    os::unix::fs::FileExt as _,
};

use rustix::fs::MemfdFlags;
use speed_bump_abi::control_block::{ControlBlock, HelperCommand, StubForm};
use tempfile::TempDir;

use super::Input;
use crate::{
    bounds::Budget,
    python::{
        helper::{Block, HelperClock, InPlace, NewFunctions, Room, block::Contents, words},
        perf_map::{FOLLOWED_BY_ALL, PerfMapFollower},
        root::ProcessRoot,
        source::SourceIndex,
        trampoline::Trampolines,
        version::PythonVersion,
    },
    units::{Nanos, VirtualAddress},
};

/// The process writes anything into the shared block at any moment, truncates it, and extends it.
///
/// The input is a list of steps with their operands.
pub fn control_block(bytes: &[u8]) {
    let contents = Contents {
        room: Room { functions: 32 },
        selector: b"",
        stub_form: StubForm::Nop,
        command: HelperCommand::Run,
        signals: &[(50, Nanos(1))],
        in_place: Some(InPlace {
            clock: HelperClock::MONOTONIC,
            policies: 8,
            children: true,
            times: true,
            timing: 1,
            callers: true,
        }),
    };
    let Ok(file) =
        rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map(File::from)
    else {
        return;
    };
    let Ok(theirs) = file.try_clone() else { return };
    if contents.write(&file).is_err() {
        return;
    }
    let Ok(block) = Block::new(file, &contents) else { return };
    let layout = *block.layout();
    let mut functions = NewFunctions::default();
    let mut taken = 0;
    let mut input = Input(bytes);
    while !input.is_empty() {
        let step = input.byte();
        let place = u64::from(input.short());
        let (start, room) = match step & 7 {
            0 => (0, size_of::<ControlBlock>() as u64),
            1 => (layout.functions, layout.index - layout.functions),
            2 => (layout.names, layout.names_capacity),
            3 => (offset_of!(ControlBlock, functions) as u64, 1),
            4 => (layout.callers, layout.size - layout.callers),
            5 => {
                theirs.set_len(place * layout.size / 0xffff).ok();
                continue;
            }
            6 => {
                block.retarget(input.bytes(usize::from(step >> 3))).ok();
                block.command(HelperCommand::Leave).ok();
                continue;
            }
            _ => {
                taken += look(&block, &mut functions);
                continue;
            }
        };
        let length = usize::from(step >> 3) + 1;
        theirs.write_all_at(input.bytes(length), start + place % room).ok();
    }
    taken += look(&block, &mut functions);
    // The reader reports each record only once, however often the record changes.
    assert!(taken <= layout.functions_capacity as usize);
}

fn look(block: &Block, functions: &mut NewFunctions) -> usize {
    if let Ok(report) = block.report() {
        assert!(words::notices(report.notices).len() <= 32);
    }
    if let Ok((failure, text)) = block.failure() {
        assert!(text.len() <= 3 * speed_bump_abi::control_block::FAILURE_TEXT_BYTES);
        assert!(words::failure(failure, &text).contains(&text));
    }
    if let Ok(Some(answer)) = block.signal_answer() {
        assert!(answer.taken.len() <= speed_bump_abi::control_block::SIGNALS);
    }
    if let Ok(calls) = block.calls(0, 64) {
        assert_eq!(calls.len(), 64);
    }
    if let Ok(times) = block.times(0, 64) {
        assert!(times.is_none_or(|times| times.len() == 64));
    }
    let mut pairs = 0;
    if block.callers(|pair| pairs += u32::from(pair.times.calls > 0)).is_ok() {
        assert!(pairs <= block.layout().callers_capacity);
    }
    let _ = (block.without_caller(), block.untimed());
    let _ = block.floor();
    let Ok(found) = functions.take(block) else { return 0 };
    let longest = block.layout().names_capacity as usize * 3;
    for function in &found {
        assert!(function.name.len() <= longest && function.file.len() <= longest);
    }
    found.len()
}

thread_local! {
    /// A root directory for perf maps, which all runs share.
    static ROOT: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// Between any two reads, the process appends to its perf map, truncates it, or replaces it by another file
/// or something else.
pub fn perf_map(bytes: &[u8]) {
    ROOT.with_borrow_mut(|root| {
        if root.is_none() {
            *root = tempfile::Builder::new().tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).ok();
        }
        if let Some(root) = root {
            perf_map_below(root, bytes);
        }
    });
}

fn perf_map_below(root: &TempDir, bytes: &[u8]) {
    let folder = root.path().join("tmp");
    let map = folder.join("perf-7.map");
    let (fresh, other) = (folder.join("fresh"), folder.join("other"));
    if fs::create_dir_all(&folder).is_err() || fs::write(&map, "").is_err() {
        return;
    }
    let Ok(process_root) = ProcessRoot::at(root.path()) else { return };
    let user = rustix::process::getuid().as_raw();
    let mut follower = PerfMapFollower::new(process_root, 7, &[user], &Budget::new(FOLLOWED_BY_ALL));
    let mut trampolines = Trampolines::default();
    let mut input = Input(bytes);
    while !input.is_empty() {
        let step = input.byte();
        let length = usize::from(input.byte());
        let text = input.bytes(length);
        match step & 7 {
            0 | 1 => drop(OpenOptions::new().append(true).open(&map).and_then(|mut map| map.write_all(text))),
            2 => drop(fs::write(&map, text)),
            3 => {
                let cut = OpenOptions::new().write(true).open(&map);
                drop(cut.and_then(|map| map.set_len(text.len() as u64 * 16)));
            }
            4 => drop(fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &map))),
            5 => {
                drop(fs::remove_file(&map));
                drop(std::os::unix::fs::symlink("other", &map).and_then(|()| fs::write(&other, text)));
            }
            6 => {
                drop(fs::remove_file(&map));
                drop(fs::create_dir(&map));
                follower.poll(|| Ok(Vec::new())).ok();
                drop(fs::remove_dir(&map));
            }
            _ => {}
        }
        look_at_map(&mut follower, &mut trampolines, step >> 3);
    }
    drop(fs::remove_file(&map));
}

fn look_at_map(follower: &mut PerfMapFollower, trampolines: &mut Trampolines, choice: u8) {
    let page = |number: u64| VirtualAddress(number << 12)..VirtualAddress((number + 1) << 12);
    let executable: Vec<Range<VirtualAddress>> =
        (0..u64::from(choice)).map(|number| page(7 * number)).collect();
    let Ok(entries) = follower.poll(|| Ok(executable.clone())) else { return };
    for entry in &entries {
        let end = VirtualAddress(entry.address.0 + entry.size);
        let inside = |range: &Range<VirtualAddress>| range.start <= entry.address && end <= range.end;
        assert!(executable.iter().any(inside), "{entry:?}");
        assert!(!entry.qualname.is_empty());
        // The process also controls the code there. Here, we use the name as code.
        let code = entry.filename.as_bytes();
        let found = trampolines.return_address(entry, |_, buffer| {
            buffer
                .iter_mut()
                .zip(code.iter().chain(std::iter::repeat(&0xcc)))
                .for_each(|(to, from)| *to = *from);
            Ok(())
        });
        if let Ok(address) = found {
            assert!(entry.address < address && address <= end);
        }
    }
}

/// Any bytes as a Python source file, for any release.
pub fn source(bytes: &[u8]) {
    let mut input = Input(bytes);
    let version = PythonVersion::new(3, 6 + input.byte() % 10);
    let Ok(index) = SourceIndex::parse(input.0, version) else { return };
    let objects = index.code_objects();
    assert!(objects.is_sorted_by_key(|object| object.first_line));
    assert!(objects.iter().any(|object| object.name == "<module>"));
    for object in objects.iter().take(16) {
        assert!(object.first_line <= object.last_line);
        for line in [object.first_line.cast_signed(), object.last_line.cast_signed(), -1, i32::MAX] {
            let found = index.find(&object.name, line);
            assert!(found.is_some_and(|found| !found.qualnames.is_empty()));
        }
    }
}
