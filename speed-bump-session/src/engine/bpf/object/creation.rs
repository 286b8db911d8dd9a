//! The maps of an object: their sizes, constants, and creation.

use std::{
    collections::HashMap,
    os::fd::{AsFd as _, OwnedFd},
};

use aya::{
    Ebpf, EbpfLoader,
    maps::{Map, MapData},
};
use aya_obj::{EbpfSectionKind, Object, generated::bpf_map_type};
use speed_bump_abi::{Policy, maps};

use super::{EngineError, unfit};
use crate::{
    engine::bpf::{Capacity, Hold, processors},
    kernel::TaskOffsets,
    sys::bpf,
};

/// The maps of a loaded object. Each map stays here until someone takes it.
pub(in crate::engine::bpf) struct Maps(HashMap<String, Map>);

impl Maps {
    /// Takes over the maps of a loaded object.
    pub(super) fn new(mut ebpf: Ebpf) -> Self {
        let names: Vec<String> = ebpf.maps().map(|(name, _)| name.to_owned()).collect();
        Self(names.into_iter().filter_map(|name| ebpf.take_map(&name).map(|map| (name, map))).collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Map)> {
        self.0.iter().map(|(name, map)| (name.as_str(), map))
    }

    /// Returns a map, which stays here.
    pub(in crate::engine::bpf) fn get(&self, name: &'static str) -> Result<&Map, EngineError> {
        self.0.get(name).ok_or(EngineError::NoMap { name })
    }

    /// Takes a map out.
    pub(in crate::engine::bpf) fn take(&mut self, name: &'static str) -> Result<Map, EngineError> {
        self.0.remove(name).ok_or(EngineError::NoMap { name })
    }
}

/// Sizes and constants that replace the compiled ones.
pub(super) struct MapSettings {
    /// The number of elements of each map.
    entries: Vec<(&'static str, u32)>,
    /// The values of the programs' constants.
    constants: Vec<(&'static str, Vec<u8>)>,
}

impl MapSettings {
    pub(super) fn new(capacity: Capacity, offsets: &TaskOffsets, hold: Hold, may_sleep: bool) -> Self {
        let timed = capacity.timed_functions();
        let Capacity { policies, sites, functions, histograms, times, bound, .. } = capacity;
        let Capacity { called, trampolines, python_usdt, .. } = capacity;
        let mut entries = vec![
            (maps::POLICIES, policies.max(1).saturating_mul(Policy::ROWS)),
            (maps::COUNTERS, policies.max(1)),
            (maps::SITES, sites.max(1)),
            (maps::FUNCTIONS, functions.max(1)),
            (maps::STATS, functions.max(1).saturating_mul(processors())),
            (maps::HISTOGRAMS, histograms.max(1)),
            (maps::TIMES, timed),
            (maps::CALLER_LINES, called.max(1)),
            (maps::TRAMPOLINES, trampolines.max(1)),
        ];
        if times {
            entries.push((maps::CALLS, threads(TIMED_THREADS)));
        }
        if bound {
            entries.push((maps::BUCKETS, threads(BOUNDED_THREADS)));
        }
        if !python_usdt {
            entries.extend([(maps::PYTHON_KEYS, 1), (maps::PYTHON_VERDICTS, 1), (maps::PYTHON_PENDING, 1)]);
        }
        let TaskOffsets { pid, tgid, mm, ptrace, leader, start, blocked, sighand, actions, action_bytes } =
            *offsets;
        let offsets = [
            ("TASK_PID_OFFSET", pid),
            ("TASK_TGID_OFFSET", tgid),
            ("TASK_MM_OFFSET", mm),
            ("TASK_PTRACE_OFFSET", ptrace),
            ("TASK_LEADER_OFFSET", leader),
            ("TASK_START_OFFSET", start),
            ("TASK_BLOCKED_OFFSET", blocked),
            ("TASK_SIGHAND_OFFSET", sighand),
            ("SIGHAND_ACTION_OFFSET", actions),
            ("ACTION_BYTES", action_bytes),
        ];
        let mut constants: Vec<_> =
            offsets.into_iter().map(|(name, offset)| (name, offset.to_ne_bytes().to_vec())).collect();
        constants.extend([
            ("HOLD_NS", hold.limit.0.to_ne_bytes().to_vec()),
            ("HOLD_TASKS", hold.tasks.to_ne_bytes().to_vec()),
            ("PROCESSORS", processors().to_ne_bytes().to_vec()),
            ("MAY_SLEEP", u32::from(may_sleep).to_ne_bytes().to_vec()),
        ]);
        Self { entries, constants }
    }

    /// Creates an object's maps.
    pub(super) fn create(&self, object: &mut Object, btf: &OwnedFd) -> Result<Maps, EngineError> {
        let constants = self.constants.iter().map(|(name, bytes)| (*name, (bytes.as_slice(), true)));
        object.patch_map_data(constants.collect()).map_err(|error| unfit(&error))?;
        let mut created = HashMap::with_capacity(object.maps.len());
        for (name, map) in &object.maps {
            let mut map = map.clone();
            if let Some((_, entries)) = self.entries.iter().find(|(of, _)| of == name) {
                map.set_max_entries(*entries);
            }
            let is_read_only = map.section_kind() == EbpfSectionKind::Rodata;
            let (kind, element_bytes, contents) = (map.map_type(), map.value_size(), map.data().to_vec());
            let data = MapData::create(map, name, Some(btf.as_fd()))?;
            let set = || {
                if !contents.is_empty() {
                    bpf::set_first_element(data.fd().as_fd(), element_bytes, &contents)?;
                }
                // The verifier treats a map as constant only if it can no longer change.
                if is_read_only { bpf::freeze(data.fd().as_fd()) } else { Ok(()) }
            };
            set().map_err(|error| EngineError::Contents { name: name.clone(), error })?;
            let map = as_map(kind, data).ok_or_else(|| {
                EngineError::Object(format!("map `{name}` is of a kind that the loader does not use"))
            })?;
            created.insert(name.clone(), map);
        }
        Ok(Maps(created))
    }

    /// aya's loader, with the same settings.
    pub(super) fn loader(&self) -> EbpfLoader<'_> {
        let mut loader = EbpfLoader::new();
        // These programs do not need the kernel's type information. Reading it takes milliseconds.
        loader.btf(None);
        for (name, bytes) in &self.constants {
            loader.override_global(name, bytes.as_slice(), true);
        }
        for (name, entries) in &self.entries {
            loader.map_max_entries(name, *entries);
        }
        loader
    }
}

/// The most threads that the programs can time at the same time.
const TIMED_THREADS: u32 = 2_048;
/// The most threads that can have delays in a window, if delays are bounded: 512 threads in each of 64
/// processes. Each thread takes some 90 bytes.
const BOUNDED_THREADS: u32 = 32_768;
/// The number of elements that each processor keeps for itself (kernel/bpf/bpf_lru_list.c,
/// `LOCAL_FREE_TARGET`).
const KEPT_BY_PROCESSOR: u32 = 128;

/// The number of elements that a map must have to hold this number of threads.
fn threads(count: u32) -> u32 {
    processors().saturating_mul(KEPT_BY_PROCESSOR).saturating_add(count)
}

/// Wraps a map in the type for its kind; `None` for kinds that the object does not use.
fn as_map(kind: u32, data: MapData) -> Option<Map> {
    let kind = bpf_map_type::try_from(kind).ok()?;
    Some(match kind {
        bpf_map_type::BPF_MAP_TYPE_ARRAY => Map::Array(data),
        bpf_map_type::BPF_MAP_TYPE_HASH => Map::HashMap(data),
        bpf_map_type::BPF_MAP_TYPE_LRU_HASH => Map::LruHashMap(data),
        bpf_map_type::BPF_MAP_TYPE_PERCPU_ARRAY => Map::PerCpuArray(data),
        bpf_map_type::BPF_MAP_TYPE_PROG_ARRAY => Map::ProgramArray(data),
        bpf_map_type::BPF_MAP_TYPE_RINGBUF => Map::RingBuf(data),
        _ => return None,
    })
}

/// The data of a map of one of these kinds.
pub(super) fn data_of(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::ProgramArray(data)
        | Map::RingBuf(data) => Some(data),
        _ => None,
    }
}
