//! From the checked-in BPF object to loaded programs.
//!
//! aya creates the maps and will load the tracepoint programs; the uprobe programs are relocated here with
//! aya-obj and loaded through [`sys::bpf`](crate::sys::bpf), for the attach type that this kernel offers.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd as _, AsRawFd as _},
    sync::Arc,
};

use aya::{
    Ebpf, EbpfError, EbpfLoader, features,
    maps::{Map, MapError},
    programs::ProgramError,
};
use aya_obj::Object;
use speed_bump_abi::{Policy, maps};

use super::{Capacity, Form, Hold, copies::Original, decisions, programs::Programs};
use crate::{
    causes::with_causes,
    kernel::TaskOffsets,
    sys::bpf::{self, LoadError},
};

/// The object, built by `cargo xtask ebpf`.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.x86_64.bpf.o");
/// The object, built by `cargo xtask ebpf`.
#[cfg(target_arch = "aarch64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.aarch64.bpf.o");

/// The same, built to log what it decides.
#[cfg(target_arch = "x86_64")]
static LOGGING_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.log.x86_64.bpf.o");
/// The same, built to log what it decides.
#[cfg(target_arch = "aarch64")]
static LOGGING_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.log.aarch64.bpf.o");

/// A checksum (CRC-32) of the object, by which builds are told apart.
pub fn checksum() -> u32 {
    crc32fast::hash(OBJECT)
}

/// Why the BPF object could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// aya could not parse the object or create its maps.
    #[error("cannot create the BPF maps: {}", with_causes(.0))]
    Maps(EbpfError),
    /// aya-obj could not relocate the object.
    #[error("the BPF object does not fit this loader ({0}); rebuild it with `cargo xtask ebpf`")]
    Object(String),
    /// The kernel offers no BTF for programs.
    #[error(
        "this kernel does not accept BTF with BPF programs; it needs 5.2 or later with CONFIG_DEBUG_INFO_BTF \
         or at least CONFIG_BPF_SYSCALL"
    )]
    NoBtf,
    /// The kernel refused the type information.
    #[error("the kernel refused the BPF object's type information: {0}")]
    Btf(io::Error),
    /// The kernel refused a program.
    #[error("the kernel refused the BPF program `{name}`: {error}")]
    Load {
        /// The program.
        name: &'static str,
        /// Why.
        error: LoadError,
    },
    /// A program that follows processes could not be attached.
    #[error("cannot follow forks and execs with the BPF program `{name}`: {}; `--no-children` does \
             without", with_causes(.error))]
    Follow {
        /// The program.
        name: &'static str,
        /// Why.
        error: ProgramError,
    },
    /// The object lacks a map.
    #[error("the BPF object has no map `{name}`; rebuild it with `cargo xtask ebpf`")]
    NoMap {
        /// The map.
        name: &'static str,
    },
    /// The object lacks a program.
    #[error("the BPF object has no program `{name}`; rebuild it with `cargo xtask ebpf`")]
    NoProgram {
        /// The program.
        name: &'static str,
    },
    /// A map could not be mapped into memory.
    #[error("cannot map the BPF map `{name}` into memory: {error}; raise `ulimit -v`")]
    Mapping {
        /// The map.
        name: &'static str,
        /// Why.
        error: io::Error,
    },
    /// There is no room for more policies.
    #[error("there is no policy {number}: the session has room for fewer; use fewer targets")]
    NoPolicy {
        /// Its number.
        number: u32,
    },
    /// A map could not be read or written.
    #[error("cannot use a BPF map: {}", with_causes(.0))]
    Map(MapError),
}

impl From<EbpfError> for EngineError {
    fn from(error: EbpfError) -> Self {
        Self::Maps(error)
    }
}

impl From<MapError> for EngineError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// What [`load`] made.
pub(super) struct Loaded {
    pub(super) ebpf: Ebpf,
    pub(super) programs: Programs,
}

/// Creates the maps and loads the uprobe programs. They log what they decide where that is to be shown, and
/// give way to others while they spin where the kernel can have that.
pub(super) fn load(
    capacity: Capacity,
    form: Form,
    offsets: Option<TaskOffsets>,
    hold: Hold,
) -> Result<Loaded, EngineError> {
    if decisions::are_wanted() {
        match load_object(LOGGING_OBJECT, capacity, form, offsets, hold, false) {
            Err(EngineError::Load { name, error }) => {
                tracing::debug!("this kernel takes no BPF program that logs ({name}: {error})");
            }
            loaded => return loaded,
        }
    }
    if form.may_sleep() {
        match load_object(OBJECT, capacity, form, offsets, hold, true) {
            Err(EngineError::Load { name, error }) => {
                tracing::debug!("this kernel takes no BPF program for uprobes that sleeps ({name}: {error})");
            }
            loaded => return loaded,
        }
    }
    load_object(OBJECT, capacity, form, offsets, hold, false)
}

fn load_object(
    bytes: &[u8],
    capacity: Capacity,
    form: Form,
    offsets: Option<TaskOffsets>,
    hold: Hold,
    may_sleep: bool,
) -> Result<Loaded, EngineError> {
    let ebpf = create_maps(bytes, capacity, offsets, hold, may_sleep)?;

    let unfit = |error: &(dyn std::error::Error + 'static)| EngineError::Object(with_causes(error));
    let mut object = Object::parse(bytes).map_err(|error| unfit(&error))?;
    let btf_features = features().btf().ok_or(EngineError::NoBtf)?;
    let btf = object
        .fixup_and_sanitize_btf(btf_features)
        .map_err(|error| unfit(&error))?
        .ok_or(EngineError::NoBtf)?;
    let btf = Arc::new(bpf::load_btf(&btf.to_bytes()).map_err(EngineError::Btf)?);

    let descriptors: HashMap<&str, i32> =
        ebpf.maps().filter_map(|(name, map)| Some((name, descriptor(map)?))).collect();
    let object_maps = std::mem::take(&mut object.maps);
    // aya-obj would put another map in the place of one that it is not given.
    if let Some(name) = object_maps.keys().find(|name| !descriptors.contains_key(name.as_str())) {
        return Err(EngineError::Object(format!("map `{name}` is of a kind that the loader does not use")));
    }
    let text_sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    object
        .relocate_maps(
            object_maps
                .iter()
                .filter_map(|(name, map)| Some((name.as_str(), *descriptors.get(name.as_str())?, map))),
            &text_sections,
        )
        .map_err(|error| unfit(&error))?;
    object.relocate_calls(&text_sections).map_err(|error| unfit(&error))?;
    object.sanitize_functions(features());

    let original = |name: &'static str| {
        let program = object.programs.get(name).ok_or(EngineError::NoProgram { name })?;
        let function =
            object.functions.get(&program.function_key()).ok_or(EngineError::NoProgram { name })?;
        Ok::<_, EngineError>(Original {
            name,
            instructions: function.instructions.clone(),
            license: program.license.clone(),
            btf: Arc::clone(&btf),
            function_info: (function.func_info.func_info_bytes(), function.func_info_rec_size),
        })
    };
    let program = |name: &'static str| {
        let loaded = original(name)?.load(form.attach_type(), may_sleep);
        loaded.map_err(|error| EngineError::Load { name, error })
    };
    let programs = match form {
        Form::Multi | Form::Single => Programs::Shared {
            site: program(maps::PROGRAM_SITE)?,
            trampoline: Some(program(maps::PROGRAM_TRAMPOLINE)?),
            python_usdt: Some(program(maps::PROGRAM_PYTHON_USDT)?),
            python_helper: program(maps::PROGRAM_PYTHON_HELPER)?,
        },
        Form::Bounded => Programs::Shared {
            site: program(maps::PROGRAM_SITE_BOUNDED)?,
            trampoline: None,
            python_usdt: None,
            python_helper: program(maps::PROGRAM_PYTHON_BOUNDED)?,
        },
        Form::Copied => Programs::Copied {
            site: original(maps::PROGRAM_SITE_BOUNDED)?,
            python_helper: original(maps::PROGRAM_PYTHON_BOUNDED)?,
        },
    };
    Ok(Loaded { ebpf, programs })
}

fn create_maps(
    bytes: &[u8],
    capacity: Capacity,
    offsets: Option<TaskOffsets>,
    hold: Hold,
    may_sleep: bool,
) -> Result<Ebpf, EngineError> {
    let TaskOffsets { pid, tgid, mm, ptrace, leader, start, blocked, sighand, actions, action_bytes } =
        offsets.unwrap_or_default();
    let Capacity { policies, sites, functions, trampolines, python_usdt } = capacity;
    let may_sleep_word = u32::from(may_sleep);
    let mut loader = EbpfLoader::new();
    loader
        .override_global("TASK_PID_OFFSET", &pid, true)
        .override_global("TASK_TGID_OFFSET", &tgid, true)
        .override_global("TASK_MM_OFFSET", &mm, true)
        .override_global("TASK_PTRACE_OFFSET", &ptrace, true)
        .override_global("TASK_LEADER_OFFSET", &leader, true)
        .override_global("TASK_START_OFFSET", &start, true)
        .override_global("TASK_BLOCKED_OFFSET", &blocked, true)
        .override_global("TASK_SIGHAND_OFFSET", &sighand, true)
        .override_global("SIGHAND_ACTION_OFFSET", &actions, true)
        .override_global("ACTION_BYTES", &action_bytes, true)
        .override_global("HOLD_NS", &hold.limit.0, true)
        .override_global("HOLD_TASKS", &hold.tasks, true)
        .override_global("MAY_SLEEP", &may_sleep_word, true)
        .map_max_entries(maps::POLICIES, policies.max(1).saturating_mul(Policy::ROWS))
        .map_max_entries(maps::COUNTERS, policies.max(1))
        .map_max_entries(maps::SITES, sites.max(1))
        .map_max_entries(maps::FUNCTIONS, functions.max(1))
        .map_max_entries(maps::STATS, functions.max(1))
        .map_max_entries(maps::TRAMPOLINES, trampolines.max(1));
    if !python_usdt {
        loader
            .map_max_entries(maps::PYTHON_KEYS, 1)
            .map_max_entries(maps::PYTHON_VERDICTS, 1)
            .map_max_entries(maps::PYTHON_PENDING, 1);
    }
    Ok(loader.load(bytes)?)
}

/// The descriptor of a map of one of the kinds that the object uses.
fn descriptor(map: &Map) -> Option<i32> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::PerCpuArray(data) | Map::RingBuf(data) => {
            Some(data.fd().as_fd().as_raw_fd())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
