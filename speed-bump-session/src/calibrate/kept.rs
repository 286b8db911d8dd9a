//! Keeps the results of calibration for later sessions, until the machine reboots.
//!
//! Measuring takes half a second. The costs depend on the boot, the kernel, the processor and this program.
//! So we keep the costs in a file in /run that belongs to root. We use the file only if no other user can
//! have written it, and if all values are plausible. Otherwise we measure the machine. Each session
//! [checks](super::check) the costs that it needs.

mod file;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use speed_bump_abi::{ColdSegment, Coldness};

use super::{line::MAX_FACTOR, stubs::Stub};
use crate::{
    engine::bpf::{Form, object},
    kernel::KernelFacts,
    probe::cost::{CostTable, SiteCost},
    units::Nanos,
};

/// The folder of the file.
const FOLDER: &str = "/run/speed-bump-ebpf";
/// An upper limit for a plausible cost: no call costs this much, even on an emulated processor.
const MAX: Nanos = Nanos(10_000_000);
/// The number of bytes of /proc/cpuinfo that contain the lines of the first processor.
const CPUINFO_BYTES: u64 = 4096;
/// The fields of /proc/cpuinfo that identify the processor's model, on x86-64 and aarch64. Other fields
/// change with each read, or differ between the processors of a machine.
const CPUINFO_NAMES: [&str; 11] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "microcode",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
];

/// The facts that the costs depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    /// This boot of the machine. Other boots may have other settings.
    boot_id: String,
    /// The kernel's release.
    kernel: String,
    /// The processor's model.
    processor: String,
    /// This program: its version, its BPF object, and its file.
    build: String,
}

/// The file's contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    key: Key,
    form: Form,
    costs: Vec<SiteCost>,
    /// One for the way into a trap, and one for the way back.
    coldness: [KeptColdness; Coldness::WAYS],
    nop5_survives_forks: bool,
    signal: Option<Nanos>,
}

/// A serializable [`Coldness`]. The crate of that type has no serde.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptColdness {
    warm_ns: u32,
    /// The length in ns and the factor of each segment.
    segments: [(u32, u32); Coldness::SEGMENTS],
}

/// The kept costs of this machine. Does nothing if there is no place to keep them.
#[derive(Clone, Debug)]
pub struct KeptCosts {
    folder: PathBuf,
    key: Option<Key>,
}

impl KeptCosts {
    /// The costs for the running kernel and this program.
    pub fn for_kernel(kernel: &KernelFacts) -> Self {
        let key = Key::read(kernel);
        let key = key.inspect_err(|error| tracing::info!("costs are not kept: {error}")).ok();
        Self { folder: FOLDER.into(), key }
    }

    /// The kept costs, if they belong to this machine in its present state.
    pub fn read(&self, kernel: &KernelFacts) -> Option<CostTable> {
        let key = self.key.as_ref()?;
        match file::read(&self.folder) {
            Ok(bytes) => {
                let table = table(&bytes?, key, kernel);
                table.inspect_err(|why| tracing::info!("the costs that were kept are not used: {why}")).ok()
            }
            Err(error) => {
                tracing::info!("the costs that were kept are not used: {error}");
                None
            }
        }
    }

    /// Keeps a table, and replaces the former one.
    pub fn write(&self, table: &CostTable) {
        let Some(key) = self.key.clone() else { return };
        let contents = contents(table, key);
        let written = serde_json::to_vec_pretty(&contents)
            .map_err(io::Error::from)
            .and_then(|text| file::write(&self.folder, &text));
        if let Err(error) = written {
            tracing::info!("what was measured is not kept: {error}");
        }
    }
}

impl Key {
    fn read(kernel: &KernelFacts) -> io::Result<Self> {
        let program = fs::metadata("/proc/self/exe")?;
        Ok(Self {
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned(),
            kernel: kernel.release.clone(),
            processor: processor()?,
            build: format!(
                "{} {} {:08x} {}:{} {} {}.{:09}",
                env!("CARGO_PKG_VERSION"),
                env!("SPEED_BUMP_COMMIT"),
                object::checksum(),
                program.dev(),
                program.ino(),
                program.size(),
                program.ctime(),
                program.ctime_nsec(),
            ),
        })
    }
}

/// The model of the first processor.
///
/// # Errors
/// The kernel does not give the model.
pub fn processor() -> io::Result<String> {
    let mut text = Vec::new();
    File::open("/proc/cpuinfo")?.take(CPUINFO_BYTES).read_to_end(&mut text)?;
    Ok(model(&String::from_utf8_lossy(&text)))
}

fn model(cpuinfo: &str) -> String {
    let first = cpuinfo.lines().take_while(|line| !line.trim().is_empty());
    let fields =
        first.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()));
    let told: Vec<&str> =
        fields.filter(|(name, _)| CPUINFO_NAMES.contains(name)).map(|(_, value)| value).collect();
    told.join(", ")
}

fn contents(table: &CostTable, key: Key) -> Contents {
    let coldness = table.coldness.map(|way| KeptColdness {
        warm_ns: way.warm_ns,
        segments: way.segments.map(|segment| (segment.length_ns, segment.factor)),
    });
    Contents {
        key,
        form: table.form,
        costs: table.costs.clone(),
        coldness,
        nop5_survives_forks: table.nop5_survives_forks,
        signal: table.signal,
    }
}

/// Reads the table in a file. If we cannot use the table, the error has the reason.
fn table(bytes: &[u8], key: &Key, kernel: &KernelFacts) -> Result<CostTable, String> {
    let contents: Contents = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if contents.key != *key {
        return Err("they are of another boot, kernel, processor or program".to_owned());
    }
    let Contents { form, costs, coldness, nop5_survives_forks, signal, .. } = contents;
    let is_possible = form == Form::single(kernel) || (form == Form::Multi && kernel.has_uprobe_multi());
    if !is_possible {
        return Err(format!("programs in the form {form:?} do not work on this kernel"));
    }
    if !costs.iter().map(|cost| cost.kind).eq(Stub::all().iter().map(|stub| stub.kind)) {
        return Err("they are of other kinds of sites".to_owned());
    }
    let times = costs.iter().flat_map(|cost| [cost.unselected, cost.floor, cost.overhead]).chain(signal);
    let lengths =
        coldness.iter().flat_map(|way| way.segments.iter().map(|segment| segment.0).chain([way.warm_ns]));
    if times.chain(lengths.map(|ns| Nanos(ns.into()))).any(|time| time > MAX) {
        return Err(format!("a call takes more than {MAX} there"));
    }
    if coldness.iter().flat_map(|way| way.segments).any(|(_, factor)| factor > MAX_FACTOR) {
        return Err("cold caches cost more there than can be".to_owned());
    }
    let coldness = coldness.map(|way| Coldness {
        warm_ns: way.warm_ns,
        segments: way.segments.map(|(length_ns, factor)| ColdSegment { length_ns, factor }),
        ..Coldness::default()
    });
    Ok(CostTable { form, costs, coldness, nop5_survives_forks, signal })
}

#[cfg(test)]
mod tests;
