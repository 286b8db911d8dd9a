//! A control block, from the loader's side.

#![allow(clippy::unwrap_used)]

use std::{
    fs::File,
    os::fd::AsRawFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use memmap2::MmapRaw;
use rustix::fs::{MemfdFlags, memfd_create};
use speed_bump_abi::control_block::{
    ControlBlock, Failure, FunctionRecord, HEARTBEAT_EVERY_MS, HelperCommand, MAGIC, State, StubForm, VERSION,
};
use speed_bump_session::targets::{ParsedTargets, selector};
use speed_bump_testing::wait::wait_until;

const SELECTOR: usize = 4096;
/// It has room for two selectors, used in turn.
const SELECTOR_BYTES: usize = 64 << 10;
const FUNCTIONS: usize = SELECTOR + 2 * SELECTOR_BYTES;
const NAMES_BYTES: usize = 1 << 20;

/// A function in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Found {
    pub(crate) target: u32,
    pub(crate) qualname: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) generation: u32,
}

pub(crate) struct Control {
    file: File,
    map: Arc<MmapRaw>,
    heart: Option<Heart>,
}

/// The thread that keeps the heartbeat going.
struct Heart {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Control {
    /// One for these targets, with a heart.
    pub(crate) fn new(targets: &str, command: HelperCommand) -> Self {
        Self::with_capacity(targets, command, 4096)
    }

    pub(crate) fn with_capacity(targets: &str, command: HelperCommand, capacity: u32) -> Self {
        let slots = (2 * capacity).next_power_of_two();
        let index = FUNCTIONS + capacity as usize * size_of::<FunctionRecord>();
        let names = index + slots as usize * 4;
        let size = names + NAMES_BYTES;
        let file = File::from(memfd_create("speed-bump-control", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(size as u64).unwrap();
        let map = Arc::new(MmapRaw::map_raw(&file).unwrap());
        let mut control = Self { file, map, heart: None };
        let head = control.head();
        head.magic.store(MAGIC, Ordering::Relaxed);
        head.version.store(VERSION, Ordering::Relaxed);
        head.stub_form.store(StubForm::Nop as u32, Ordering::Relaxed);
        head.size.store(size as u64, Ordering::Relaxed);
        head.command.store(command as u32, Ordering::Relaxed);
        head.functions_offset.store(FUNCTIONS as u64, Ordering::Relaxed);
        head.functions_capacity.store(capacity, Ordering::Relaxed);
        head.index_slots.store(slots, Ordering::Relaxed);
        head.index_offset.store(index as u64, Ordering::Relaxed);
        head.names_offset.store(names as u64, Ordering::Relaxed);
        head.names_capacity.store(NAMES_BYTES as u64, Ordering::Relaxed);
        control.retarget(targets);
        control.revive();
        control
    }

    pub(crate) fn head(&self) -> &ControlBlock {
        // SAFETY: as long as that, aligned, and all fields are atomics.
        unsafe { &*self.map.as_mut_ptr().cast() }
    }

    /// What another process opens.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Puts new targets to work, as the next generation.
    pub(crate) fn retarget(&self, targets: &str) {
        let targets = ParsedTargets::parse("test", targets.as_bytes(), true).unwrap();
        let bytes = selector::compile(&targets.decide(|_| false)).unwrap();
        assert!(bytes.len() <= SELECTOR_BYTES);
        let generation = self.head().generation.load(Ordering::Relaxed) + 1;
        let place = SELECTOR + (generation % 2) as usize * SELECTOR_BYTES;
        // SAFETY: in the map, where no reader looks before the generation says so.
        unsafe {
            self.map.as_mut_ptr().add(place).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        self.head().selector_offset.store(place as u64, Ordering::Release);
        self.head().selector_length.store(bytes.len() as u64, Ordering::Release);
        self.head().generation.store(generation, Ordering::Release);
        self.ring();
    }

    pub(crate) fn command(&self, command: HelperCommand) {
        self.head().command.store(command as u32, Ordering::Release);
        self.ring();
    }

    fn ring(&self) {
        self.head().bell.fetch_add(1, Ordering::Release);
        let _ = rustix::thread::futex::wake(
            &self.head().bell,
            rustix::thread::futex::Flags::empty(),
            i32::MAX as u32,
        );
    }

    /// Stops the heartbeat, as if the loader were killed.
    pub(crate) fn die(&mut self) {
        if let Some(heart) = self.heart.take() {
            heart.stop.store(true, Ordering::Release);
            heart.thread.join().unwrap();
        }
    }

    fn revive(&mut self) {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, map) = (Arc::clone(&stop), Arc::clone(&self.map));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                // SAFETY: as in `head`.
                let head: &ControlBlock = unsafe { &*map.as_mut_ptr().cast() };
                head.heartbeat.fetch_add(1, Ordering::Release);
                thread::sleep(Duration::from_millis(u64::from(HEARTBEAT_EVERY_MS)));
            }
        });
        self.heart = Some(Heart { stop, thread });
    }

    pub(crate) fn state(&self) -> u32 {
        self.head().state.load(Ordering::Acquire)
    }

    pub(crate) fn notices(&self) -> u32 {
        self.head().notices.load(Ordering::Acquire)
    }

    /// Waits for the state; the helper's own failure ends the wait.
    pub(crate) fn wait_for(&self, state: State) {
        wait_until(&format!("{state:?}"), || {
            let is = self.state();
            assert!(is != State::Failed as u32 || state == State::Failed, "{}", self.failure());
            Ok(is == state as u32)
        })
        .unwrap();
    }

    /// Waits until the last generation is at work.
    pub(crate) fn wait_for_generation(&self) {
        let generation = self.head().generation.load(Ordering::Acquire);
        wait_until("the generation", || {
            Ok(self.head().applied_generation.load(Ordering::Acquire) == generation)
        })
        .unwrap();
    }

    pub(crate) fn failure(&self) -> String {
        let head = self.head();
        let bytes: Vec<u8> = head.failure_text.0.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        let text = String::from_utf8(bytes).unwrap();
        format!("{}: {}", head.failure.load(Ordering::Acquire), text.trim_end_matches('\0'))
    }

    pub(crate) fn failed_with(&self, failure: Failure) -> bool {
        self.head().failure.load(Ordering::Acquire) == failure as u32
    }

    /// The records that are ready.
    pub(crate) fn functions(&self) -> Vec<Found> {
        let head = self.head();
        let handed_out = head.functions.load(Ordering::Acquire);
        let count = handed_out.min(head.functions_capacity.load(Ordering::Relaxed));
        (0..count).filter_map(|number| self.function(number)).collect()
    }

    pub(crate) fn function(&self, number: u32) -> Option<Found> {
        let offset = FUNCTIONS + number as usize * size_of::<FunctionRecord>();
        // SAFETY: in the map, aligned, and all fields are atomics.
        let record: &FunctionRecord = unsafe { &*self.map.as_mut_ptr().add(offset).cast() };
        let number = |field: &std::sync::atomic::AtomicU32| field.load(Ordering::Acquire);
        (number(&record.ready) == 1).then(|| Found {
            target: number(&record.target),
            qualname: self.name(number(&record.name_offset), number(&record.name_length)),
            file: self.name(number(&record.file_offset), number(&record.file_length)),
            line: number(&record.line),
            generation: number(&record.generation),
        })
    }

    fn name(&self, offset: u32, length: u32) -> String {
        assert!((offset + length) as usize <= NAMES_BYTES);
        let start = self.head().names_offset.load(Ordering::Relaxed) as usize + offset as usize;
        // SAFETY: in the map, and written before the record was ready.
        let bytes = unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(start), length as usize) };
        // SAFETY: as above.
        assert_eq!(unsafe { self.map.as_ptr().add(start + length as usize).read() }, 0);
        String::from_utf8(bytes.to_vec()).unwrap()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.die();
    }
}
