//! The BPF programs that count requests, and their maps.

use std::{fmt, path::Path};

use aya::{
    Btf, Ebpf, EbpfLoader, Endianness, Pod,
    maps::{HashMap, Map, MapData},
    programs::{BtfTracePoint, ProgramError},
};
use aya_obj::btf::BtfKind;
use speed_bump_abi::requests::maps;

use super::{SocketsError, offsets::SocketOffsets};
use crate::{
    engine::bpf::{object::SOCKETS_OBJECT, processors},
    kernel::task_offsets::VMLINUX_BTF,
    sys::kernel_types::KernelTypes,
    sys::mapped_words::MappedWords,
};

/// The tracepoints; programs have the same names. They are attached in this order: the programs that end a
/// request before the one that begins it.
const TRACEPOINTS: [&str; 3] = ["tcp_destroy_sock", "sock_send_length", "sock_recv_length"];

/// The BPF object, its maps and attached programs.
pub(super) struct Programs {
    ebpf: Ebpf,
    types: Btf,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs").finish_non_exhaustive()
    }
}

impl Programs {
    /// Creates the maps. Attaches no program.
    pub(super) fn create() -> Result<Self, SocketsError> {
        let data = KernelTypes::open(Path::new(VMLINUX_BTF)).map_err(SocketsError::NoTypes)?;
        let offsets = SocketOffsets::from_btf(&data).map_err(SocketsError::Types)?;
        let types = Btf::parse(&data, Endianness::default())
            .map_err(|error| SocketsError::KernelTypes(error.to_string()))?;
        let mut loader = EbpfLoader::new();
        for (name, offset) in offsets.constants() {
            loader.override_global(name, offset, true);
        }
        loader.map_max_entries(maps::REQUESTS, processors());
        let ebpf = loader.load(SOCKETS_OBJECT).map_err(SocketsError::Object)?;
        drop(loader);
        Ok(Self { ebpf, types })
    }

    /// A hash map of the object.
    pub(super) fn hash_map<K: Pod, V: Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<HashMap<MapData, K, V>, SocketsError> {
        let map = self.ebpf.take_map(name).ok_or(SocketsError::Lacks { name })?;
        HashMap::try_from(map).map_err(|error| SocketsError::Map { name, error })
    }

    /// An array of the object, with this many words.
    pub(super) fn words(&self, name: &'static str, length: usize) -> Result<MappedWords, SocketsError> {
        match self.ebpf.map(name) {
            Some(Map::Array(array)) => MappedWords::of_array(array.fd(), length)
                .map_err(|error| SocketsError::Mapping { name, error }),
            _ => Err(SocketsError::Lacks { name }),
        }
    }

    /// Attaches the programs, unless they are attached.
    pub(super) fn attach(&mut self) -> Result<(), SocketsError> {
        // Check this first: an older kernel would refuse a program for another reason.
        if let Some(tracepoint) = TRACEPOINTS.into_iter().find(|tracepoint| !self.has(tracepoint)) {
            return Err(SocketsError::NoTracepoint { tracepoint });
        }
        TRACEPOINTS.into_iter().try_for_each(|tracepoint| self.attach_at(tracepoint))
    }

    /// Whether the kernel has a tracepoint: then it has a type for its programs (include/trace/bpf_probe.h).
    fn has(&self, tracepoint: &str) -> bool {
        self.types.id_by_type_name_kind(&format!("btf_trace_{tracepoint}"), BtfKind::Typedef).is_ok()
    }

    fn attach_at(&mut self, tracepoint: &'static str) -> Result<(), SocketsError> {
        let lacks = SocketsError::Lacks { name: tracepoint };
        let Some(program) = self.ebpf.program_mut(tracepoint) else { return Err(lacks) };
        let program = <&mut BtfTracePoint>::try_from(program).map_err(|_| lacks)?;
        match program.load(tracepoint, &self.types) {
            Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
            Err(error) => return Err(SocketsError::Load { tracepoint, error }),
        }
        match program.attach() {
            Ok(_) | Err(ProgramError::AlreadyAttached) => Ok(()),
            Err(error) => Err(SocketsError::Attach { tracepoint, error }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use aya_obj::{Object, ProgramSection};

    use super::*;

    #[test]
    fn each_tracepoint_has_its_program_and_each_program_its_tracepoint() {
        let object = Object::parse(SOCKETS_OBJECT).unwrap();
        assert_eq!(object.programs.len(), TRACEPOINTS.len());
        for tracepoint in TRACEPOINTS {
            let section = &object.programs[tracepoint].section;
            assert!(matches!(section, ProgramSection::BtfTracePoint), "{tracepoint}");
        }
    }
}
