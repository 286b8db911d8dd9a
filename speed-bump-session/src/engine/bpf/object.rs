//! Turns the checked-in BPF object into maps, and into programs that are ready to be loaded.
//!
//! aya-obj relocates the object, aya creates the maps, and [`sys::bpf`](crate::sys::bpf) loads the programs.
//! aya's own loader could do all of this, but not for links of many uprobes. That loader also reads the
//! kernel's type information first, which these programs do not need.

mod creation;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{Arc, LazyLock},
};

use aya::{
    EbpfError, features,
    maps::{Map, MapError},
};
use aya_obj::Object;
use speed_bump_abi::maps;

use super::{
    Capacity, Form, Hold,
    copies::Original,
    decisions::{self, Decisions},
    programs::{Options, Originals, Programs},
};
use crate::{
    causes::with_causes,
    kernel::TaskOffsets,
    sys::bpf::{self, LoadError},
};
use creation::MapSettings;
pub(super) use creation::Maps;

/// The object, built by `cargo xtask ebpf`.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.x86_64.bpf.o");
/// The object, built by `cargo xtask ebpf`.
#[cfg(target_arch = "aarch64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.aarch64.bpf.o");

/// The object that logs its decisions, built by `cargo xtask ebpf`.
#[cfg(target_arch = "x86_64")]
static LOGGING_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.log.x86_64.bpf.o");
/// The object that logs its decisions, built by `cargo xtask ebpf`.
#[cfg(target_arch = "aarch64")]
static LOGGING_OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/speed-bump.log.aarch64.bpf.o");

/// The programs that count requests on sockets, for measuring a service.
#[cfg(target_arch = "x86_64")]
pub static SOCKETS_OBJECT: &[u8] =
    aya::include_bytes_aligned!("../../../bpf/speed-bump.sockets.x86_64.bpf.o");
/// The programs that count requests on sockets, for measuring a service.
#[cfg(target_arch = "aarch64")]
pub static SOCKETS_OBJECT: &[u8] =
    aya::include_bytes_aligned!("../../../bpf/speed-bump.sockets.aarch64.bpf.o");

/// A checksum (CRC-32) of the object. The checksum identifies the build.
pub fn checksum() -> u32 {
    crc32fast::hash(OBJECT)
}

/// Why we could not load the BPF object.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// aya could not parse the object or create its maps.
    #[error("cannot create the BPF maps: {}", with_causes(.0))]
    Maps(EbpfError),
    /// aya-obj could not relocate the object.
    #[error("the BPF object does not fit this loader ({0}); rebuild it with `cargo xtask ebpf`")]
    Object(String),
    /// The kernel does not support BTF for programs.
    #[error(
        "this kernel does not accept BTF with BPF programs; it needs 5.2 or later with CONFIG_DEBUG_INFO_BTF \
         or at least CONFIG_BPF_SYSCALL"
    )]
    NoBtf,
    /// The kernel refused the object's type information.
    #[error("the kernel refused the BPF object's type information: {0}")]
    Btf(io::Error),
    /// The kernel refused a program.
    #[error(
        "the kernel refused the BPF program `{name}`: {error}{}",
        if *.logs { "; the program logs why calls are not delayed, and without `-vv` another one is loaded" }
        else { "" }
    )]
    Load {
        /// The name of the program.
        name: &'static str,
        /// The error of the system call, or of the code that reads the object.
        error: LoadError,
        /// Whether this is the object that logs its decisions.
        logs: bool,
    },
    /// We could not attach a program that follows processes.
    #[error(
        "cannot follow forks and execs with the BPF program `{name}`: {error}; `--no-children` does \
             without"
    )]
    Follow {
        /// The name of the program.
        name: &'static str,
        /// The error of the system call, or of the code that reads the object.
        error: LoadError,
    },
    /// The object lacks a map.
    #[error("the BPF object has no map `{name}`; rebuild it with `cargo xtask ebpf`")]
    NoMap {
        /// The name of the map.
        name: &'static str,
    },
    /// The object lacks a program.
    #[error("the BPF object has no program `{name}`; rebuild it with `cargo xtask ebpf`")]
    NoProgram {
        /// The name of the program.
        name: &'static str,
    },
    /// We could not write the initial contents of a map.
    #[error("cannot write into the BPF map `{name}`: {error}")]
    Contents {
        /// The name of the map.
        name: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// There are no file descriptors left.
    #[error("out of file descriptors while the BPF object is loaded ({0}): raise `ulimit -n`")]
    Descriptors(io::Error),
    /// We could not map a map into memory.
    #[error("cannot map the BPF map `{name}` into memory: {error}; raise `ulimit -v`")]
    Mapping {
        /// The name of the map.
        name: &'static str,
        /// The error of the system call.
        error: io::Error,
    },
    /// There is no room for more policies.
    #[error("there is no policy {number}: the session has room for fewer; use fewer targets")]
    NoPolicy {
        /// The number of the policy.
        number: u32,
    },
    /// We could not read or write a map.
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

/// The result of [`load`].
pub(super) struct Loaded {
    pub(super) maps: Maps,
    pub(super) programs: Programs,
    pub(super) decisions: Option<Decisions>,
}

/// Creates the maps, and prepares the programs for loading. If the user wants to see decisions, the programs
/// log them. Otherwise they yield the processor while they spin, if the kernel supports that.
pub(super) fn load(
    capacity: Capacity,
    form: Form,
    offsets: Option<TaskOffsets>,
    hold: Hold,
) -> Result<Loaded, EngineError> {
    static PARSED: LazyLock<Result<Object, String>> =
        LazyLock::new(|| Object::parse(OBJECT).map_err(|error| with_causes(&error)));

    let offsets = offsets.unwrap_or_default();
    if decisions::are_wanted() {
        return load_logging(form, capacity, &offsets, hold);
    }
    let may_sleep = form.may_sleep();
    let mut object = PARSED.clone().map_err(EngineError::Object)?;
    let btf = load_btf(&mut object)?;
    let maps = MapSettings::new(capacity, &offsets, hold, may_sleep).create(&mut object, &btf)?;
    let programs = programs(object, maps.all(), form, btf, Options { may_sleep, logs: false })?;
    Ok(Loaded { maps, programs, decisions: None })
}

/// Loads the object that logs. aya creates the maps, because aya's logger needs them.
fn load_logging(
    form: Form,
    capacity: Capacity,
    offsets: &TaskOffsets,
    hold: Hold,
) -> Result<Loaded, EngineError> {
    let may_sleep = false;
    let mut object = Object::parse(LOGGING_OBJECT).map_err(|error| unfit(&error))?;
    let btf = load_btf(&mut object)?;
    let settings = MapSettings::new(capacity, offsets, hold, may_sleep);
    let mut ebpf = settings.loader().load(LOGGING_OBJECT)?;
    let programs = programs(object, ebpf.maps(), form, btf, Options { may_sleep, logs: true })?;
    let decisions = Decisions::open(&mut ebpf)?;
    Ok(Loaded { maps: Maps::new(ebpf), programs, decisions })
}

fn unfit(error: &(dyn std::error::Error + 'static)) -> EngineError {
    EngineError::Object(with_causes(error))
}

/// Loads the object's type information into the kernel.
fn load_btf(object: &mut Object) -> Result<Arc<OwnedFd>, EngineError> {
    let btf_features = features().btf().ok_or(EngineError::NoBtf)?;
    let btf = object.fixup_and_sanitize_btf(btf_features).map_err(|error| unfit(&error))?;
    let btf = btf.ok_or(EngineError::NoBtf)?.to_bytes();
    Ok(Arc::new(bpf::load_btf(&btf).map_err(EngineError::Btf)?))
}

/// The programs, linked with these maps.
fn programs<'a>(
    mut object: Object,
    maps: impl Iterator<Item = (&'a str, &'a Map)>,
    form: Form,
    btf: Arc<OwnedFd>,
    options: Options,
) -> Result<Programs, EngineError> {
    // We duplicate the descriptors, because programs contain their numbers, and we load most programs late or
    // never.
    let mut descriptors = HashMap::new();
    for (name, map) in maps {
        if let Some(data) = creation::data_of(map) {
            let own = data.fd().as_fd().try_clone_to_owned().map_err(EngineError::Descriptors)?;
            descriptors.insert(name, own);
        }
    }
    let object_maps = std::mem::take(&mut object.maps);
    // If a map were missing, aya-obj would use another map in its place.
    if let Some(name) = object_maps.keys().find(|name| !descriptors.contains_key(name.as_str())) {
        return Err(EngineError::Object(format!("map `{name}` is of a kind that the loader does not use")));
    }
    let text_sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let numbered = object_maps
        .iter()
        .filter_map(|(name, map)| Some((name.as_str(), descriptors.get(name.as_str())?.as_raw_fd(), map)));
    object.relocate_maps(numbered, &text_sections).map_err(|error| unfit(&error))?;
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
    let is_bounded = form.longest_spin().is_some();
    let of_form = |unbounded, bounded| original(if is_bounded { bounded } else { unbounded });
    let for_times = |name| form.times_calls().then(|| original(name)).transpose();
    let for_python = |name| form.has_python_programs().then(|| original(name)).transpose();
    Ok(Programs::new(
        form,
        Originals {
            site: of_form(maps::PROGRAM_SITE, maps::PROGRAM_SITE_BOUNDED)?,
            trampoline: for_python(maps::PROGRAM_TRAMPOLINE)?,
            python_usdt: for_python(maps::PROGRAM_PYTHON_USDT)?,
            python_helper: of_form(maps::PROGRAM_PYTHON_HELPER, maps::PROGRAM_PYTHON_BOUNDED)?,
            site_left: for_times(maps::PROGRAM_SITE_LEFT)?,
            site_timed: for_times(maps::PROGRAM_SITE_TIMED)?,
            site_callers: of_form(maps::PROGRAM_SITE_CALLERS, maps::PROGRAM_SITE_CALLERS_BOUNDED)?,
            site_callers_timed: for_times(maps::PROGRAM_SITE_CALLERS_TIMED)?,
            fork: original(maps::PROGRAM_FORK)?,
            exec: of_form(maps::PROGRAM_EXEC, maps::PROGRAM_EXEC_BOUNDED)?,
        },
        descriptors.into_values().collect(),
        options,
    ))
}

#[cfg(test)]
mod tests;
