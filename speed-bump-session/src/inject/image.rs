//! The helper's shared object, and its identity.

use object::{
    LittleEndian as LE,
    elf::{FileHeader64, NT_GNU_BUILD_ID},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use thiserror::Error;

/// The helper's image in this loader: a little-endian 64-bit ELF file for the processor for which the loader
/// was built.
pub static IMAGE: &[u8] = include_bytes!(env!("SPEED_BUMP_HELPER_IMAGE"));

/// The function of the helper that begins a session: `int speed_bump_attach(int control_fd)`. The function
/// always closes the descriptor. It returns 0, or the number of a
/// [`Failure`](speed_bump_abi::control_block::Failure).
pub const ATTACH: &str = "speed_bump_attach";

/// Owner and type of the ELF note with the version of the control block (speed-bump-helper/src/image.rs).
const VERSION_NOTE: (&[u8], u32) = (b"speed-bump", 1);

/// The identity of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The [version](speed_bump_abi::control_block::VERSION) of the helper's control block.
    pub version: u32,
    /// The hash that the linker made of the image.
    pub build_id: Vec<u8>,
}

/// Why we could not read the identity of an image.
#[derive(Debug, Error)]
pub enum ImageError {
    /// The file is not an ELF file, or is damaged.
    #[error("the helper's image is not a readable ELF file: {0}")]
    NotElf(object::read::Error),
    /// The ELF file lacks this note.
    #[error("the image has no {0}: it is not a helper of speed-bump-ebpf")]
    NoNote(&'static str),
}

impl From<object::read::Error> for ImageError {
    fn from(error: object::read::Error) -> Self {
        Self::NotElf(error)
    }
}

impl Identity {
    /// Reads the identity from the bytes of the file. The first pages of the file are enough.
    ///
    /// # Errors
    /// The file is not the image of a helper.
    pub fn read(image: &[u8]) -> Result<Self, ImageError> {
        let header = FileHeader64::<LE>::parse(image)?;
        let (mut version, mut build_id) = (None, None);
        for segment in header.program_headers(LE, image)? {
            let Some(mut notes) = segment.notes(LE, image)? else { continue };
            while let Some(note) = notes.next()? {
                let kind = (note.name(), note.n_type(LE));
                if kind == VERSION_NOTE {
                    version = note.desc().first_chunk().copied().map(u32::from_le_bytes);
                } else if kind == (b"GNU".as_slice(), NT_GNU_BUILD_ID) {
                    build_id = Some(note.desc().to_vec());
                }
            }
        }
        Ok(Self {
            version: version.ok_or(ImageError::NoNote("version"))?,
            build_id: build_id.ok_or(ImageError::NoNote("build id"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use object::{
        Object as _, ObjectSection as _, ObjectSymbol as _,
        read::elf::{Dyn as _, ElfFile64},
    };
    use speed_bump_abi::control_block;

    use super::*;

    fn image() -> ElfFile64<'static, LE> {
        ElfFile64::parse(IMAGE).unwrap()
    }

    #[test]
    fn it_has_an_identity() {
        let identity = Identity::read(IMAGE).unwrap();
        assert_eq!(identity.version, control_block::VERSION);
        assert_eq!(identity.build_id.len(), 20);
    }

    #[test]
    fn the_first_pages_suffice() {
        assert_eq!(Identity::read(&IMAGE[..4096]).unwrap(), Identity::read(IMAGE).unwrap());
    }

    #[test]
    fn what_is_no_helper_has_none() {
        assert!(matches!(Identity::read(b"\x7fELF"), Err(ImageError::NotElf(_))));
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert!(matches!(Identity::read(&own), Err(ImageError::NoNote("version"))));
    }

    #[test]
    fn it_needs_nothing_but_dlsym() {
        let image = image();
        let undefined: Vec<_> = image.imports().unwrap().iter().map(|i| i.name().to_owned()).collect();
        assert_eq!(undefined, [b"dlsym"]);
        let (endian, header) = (LE, image.elf_header());
        let sections = header.sections(endian, IMAGE).unwrap();
        let (dynamic, _) = sections.dynamic(endian, IMAGE).unwrap().unwrap();
        let tags: Vec<_> = dynamic.iter().map(|entry| entry.tag(endian)).collect();
        assert!(!tags.contains(&object::elf::DT_NEEDED), "{tags:?}");
        assert!(!tags.contains(&object::elf::DT_VERNEED), "{tags:?}");
        assert!(!tags.contains(&object::elf::DT_INIT) && !tags.contains(&object::elf::DT_INIT_ARRAY));
        assert!(tags.contains(&object::elf::DT_HASH) && tags.contains(&object::elf::DT_GNU_HASH));
    }

    #[test]
    fn it_exports_one_function() {
        let image = image();
        let exported: Vec<_> = image.exports().unwrap().iter().map(|e| e.name().to_owned()).collect();
        assert_eq!(exported, [ATTACH.as_bytes()]);
    }

    #[test]
    fn it_has_no_thread_local_storage_and_no_executable_stack() {
        for segment in image().elf_header().program_headers(LE, IMAGE).unwrap() {
            let (kind, flags) = (segment.p_type(LE), segment.p_flags(LE));
            assert_ne!(kind, object::elf::PT_TLS);
            assert_ne!(kind, object::elf::PT_INTERP);
            assert!(flags & (object::elf::PF_W | object::elf::PF_X) != object::elf::PF_W | object::elf::PF_X);
        }
    }

    #[test]
    fn nothing_in_it_can_panic() {
        let has_panic = |name: &&str| name.contains("panicking") || name.contains("_fail");
        let panics: Vec<_> = image().symbols().filter_map(|s| s.name().ok().filter(has_panic)).collect();
        assert!(panics.is_empty(), "{panics:?}");
    }

    #[test]
    fn its_stubs_are_described() {
        let image = image();
        let notes = image.section_by_name(".note.stapsdt").unwrap();
        let text = String::from_utf8_lossy(notes.data().unwrap()).into_owned();
        let forms = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
        let wanted =
            format!("{}\0{}\0", control_block::python_entry::PROVIDER, control_block::python_entry::NAME);
        assert_eq!(text.matches(&wanted).count(), forms, "{text:?}");
        let stubs =
            image.symbols().filter(|s| s.name().is_ok_and(|n| n.starts_with("speed_bump_python_entry")));
        assert_eq!(stubs.count(), forms);
    }
}
