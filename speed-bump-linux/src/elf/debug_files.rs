//! Finds separate debug files by build id and by `.gnu_debuglink`, below the process's root. Checks that they
//! belong to the file.
//!
//! The places are from the GDB manual, "Debugging Information in Separate Files". We do not use debuginfod.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::{
    effort::Effort,
    error::{ElfError, ElfErrorKind},
    file::{ElfFile, read_failure},
    root::Root,
    tables::Tables,
};

/// The folder where distributions put debug files.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// Finds the debug files of `main`. The path of `main` below `root` is `path`. Also returns an error for each
/// file that we find and that does not belong to `main`.
pub(super) fn find(
    main: &ElfFile,
    root: &Root,
    path: &Path,
    effort: &Effort,
) -> Result<(Vec<ElfFile>, Vec<ElfError>), ElfError> {
    let (build_id, link) = {
        let cache = main.cache();
        let tables = Tables::read(main, &cache)?;
        let link = match tables.section_named(b".gnu_debuglink") {
            Some(section) => DebugLink::parse(tables.data(section, "section .gnu_debuglink")?),
            None => None,
        };
        (tables.build_id()?, link)
    };
    let (mut found, mut rejected) = (Vec::new(), Vec::new());
    let mut try_path = |candidate: PathBuf, link: Option<&DebugLink>| {
        match ElfFile::open_debug_file(root, &candidate) {
            Ok(file) => match belongs(main, build_id.as_deref(), &file, link, effort) {
                Ok(()) => {
                    found.push(file);
                    return true;
                }
                Err(error) => rejected.push(error),
            },
            Err(ElfError { kind: ElfErrorKind::Open(error), .. }) if is_absence(&error) => {}
            Err(error) => rejected.push(error),
        }
        false
    };
    if let Some(candidate) = build_id.as_deref().and_then(build_id_path)
        && try_path(candidate, None)
    {
        return Ok((found, rejected));
    }
    if let Some(link) = link {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let global = Path::new(DEBUG_DIRECTORY).join(directory.strip_prefix("/").unwrap_or(directory));
        for directory in [directory.to_owned(), directory.join(".debug"), global] {
            let candidate = directory.join(&link.name);
            // A link may name the file itself, which is no debug file.
            if candidate != path && try_path(candidate, Some(&link)) {
                break;
            }
        }
    }
    Ok((found, rejected))
}

/// `/usr/lib/debug/.build-id/xx/yyyy….debug`.
fn build_id_path(id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = id.split_first().filter(|(_, rest)| !rest.is_empty() && rest.len() < 64)?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(PathBuf::from(format!("{DEBUG_DIRECTORY}/.build-id/{first:02x}/{rest}.debug")))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Checks that a debug file belongs to `main`. If both have build ids, these must be equal. Otherwise the
/// file must have the checksum that the link gives, and to compute it we read the whole file.
fn belongs(
    main: &ElfFile,
    build_id: Option<&[u8]>,
    file: &ElfFile,
    link: Option<&DebugLink>,
    effort: &Effort,
) -> Result<(), ElfError> {
    let wrong =
        |why| file.error(ElfErrorKind::WrongDebugFile { main: main.path().display().to_string(), why });
    match (build_id, file.build_id()?, link) {
        (Some(ours), Some(theirs), _) if *ours == *theirs => Ok(()),
        (Some(_), Some(_), _) => Err(wrong("its build id differs")),
        (_, _, Some(link)) if checksum(file, effort)? == link.checksum => Ok(()),
        (_, _, Some(_)) => Err(wrong("its checksum is not the one in .gnu_debuglink")),
        (_, _, None) => Err(wrong("it has no build id")),
    }
}

/// The CRC-32 of the whole file, as in `.gnu_debuglink`.
fn checksum(file: &ElfFile, effort: &Effort) -> Result<u32, ElfError> {
    let length = file.length();
    let holes = file.source().on_disk_of_holes().map_err(|error| file.error(read_failure(error)))?;
    if let Some(on_disk) = holes {
        return Err(file.error(ElfErrorKind::Holes { length, on_disk }));
    }
    let exhausted = |why| file.error(ElfErrorKind::Exhausted(why));
    effort.take_checked(length).map_err(exhausted)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 18];
    let mut position = 0;
    while position < length {
        effort.goes_on().map_err(exhausted)?;
        let left = usize::try_from(length - position).unwrap_or(usize::MAX);
        let part = &mut buffer[..left.min(1 << 18)];
        file.source().read_exact_at(part, position).map_err(|error| file.error(read_failure(error)))?;
        hasher.update(part);
        position += part.len() as u64;
    }
    Ok(hasher.finalize())
}

/// The contents of `.gnu_debuglink`.
struct DebugLink {
    /// A file name without a folder.
    name: String,
    checksum: u32,
}

impl DebugLink {
    /// Parses a name that ends with NUL, padding to a multiple of four, and the checksum. `None` unless the
    /// name is readable and has no folder.
    fn parse(data: &[u8]) -> Option<Self> {
        let end = data.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&data[..end]).ok()?;
        let checksum = data.get((end + 1).next_multiple_of(4)..)?.first_chunk()?;
        let bare = !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        bare.then(|| Self { name: name.to_owned(), checksum: u32::from_le_bytes(*checksum) })
    }
}

#[cfg(test)]
mod tests;
