//! Recognises CPython among the files that a process maps, and determines its version and build.
//!
//! A process may have several interpreters, or one in a library. So the symbols that a file defines decide,
//! and never the file's name alone. `elf` reads the file's probes and symbols.

mod image;

use std::{fmt, fs::File, path::Path};

use self::image::Image;
use super::version::{self, PythonVersion};
use crate::{
    elf::ElfErrorKind,
    units::{FileOffset, VirtualAddress},
};

/// The largest read-only section that we search for the version text, in bytes.
const TEXT_LIMIT: u64 = 16 << 20;

/// A CPython in an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// The version that the file gives.
    pub version: PythonVersion,
    /// Where we read the version.
    pub version_source: VersionSource,
    /// The evaluator of Python code. Absent before 3.6, whose evaluator has another name.
    pub evaluator: Option<Evaluator>,
    /// `_PyRuntime`, which leads to all threads and frames. Absent before 3.7.
    pub runtime: Option<VirtualAddress>,
    /// Whether the file has the USDT probe `python:function__entry`.
    pub has_function_entry: bool,
    /// Whether CPython was built without the global interpreter lock (`--disable-gil`, 3.13+).
    pub is_free_threaded: bool,
    /// Whether the file defines the JIT's functions. The process may still have switched the JIT off. In
    /// stripped files of 3.13 and 3.14 we cannot see the JIT.
    pub has_jit: bool,
}

/// `_PyEval_EvalFrameDefault`: every call that does not stay inside the evaluator enters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluator {
    /// The evaluator's address, as in the file's headers.
    pub address: VirtualAddress,
    /// The offset of the evaluator's code in the file.
    pub offset: FileOffset,
    /// The length of the evaluator in bytes; 0 if the file does not give it.
    pub size: u64,
}

/// Where we read a version. The most reliable source comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionSource {
    /// The constant `Py_Version` (3.11+).
    PyVersion,
    /// The head of `_PyRuntime`, written for debuggers (3.13+).
    DebugOffsets,
    /// The text that `sys.version` starts with.
    VersionText,
    /// The name of the file or of the library: two numbers only.
    Name,
}

impl fmt::Display for VersionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PyVersion => "Py_Version",
            Self::DebugOffsets => "_PyRuntime",
            Self::VersionText => "version text",
            Self::Name => "name",
        })
    }
}

/// Why we could not examine a file.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// The file starts like an ELF file, and is damaged.
    #[error("{0}")]
    Damaged(ElfErrorKind),
    /// The file evaluates Python code, but nothing in it gives the release.
    #[error(
        "holds a CPython of unknown version: no Py_Version, no version text, and a name without one; \
         is it a build of your own?"
    )]
    UnknownVersion,
}

/// The CPython in a 64-bit ELF file; `None` if the file has none or is another kind of file.
///
/// `path` is the process's name for the file. We use only its last component.
///
/// # Errors
/// The file is damaged, or holds a CPython of unknown version.
pub fn identify(file: &File, path: &Path) -> Result<Option<Interpreter>, InterpreterError> {
    let Some(image) = Image::open(file, path).map_err(InterpreterError::Damaged)? else { return Ok(None) };

    // Every CPython since 2.0 has this symbol. The file exports it if the interpreter loads extension
    // modules.
    let names = ["PyEval_EvalFrameEx", "_PyEval_EvalFrameDefault", "Py_Version", "_PyRuntime"];
    let (symbols, has_jit) = image.symbols(&names, "_PyJIT_").map_err(InterpreterError::Damaged)?;
    let [any_evaluator, evaluator, py_version, runtime] = symbols[..] else { return Ok(None) };
    if any_evaluator.is_none() && evaluator.is_none() {
        return Ok(None);
    }

    let debug = runtime.and_then(|symbol| DebugOffsets::read(&image, symbol.address));
    let (version, version_source) = py_version
        .and_then(|symbol| image.read::<4>(symbol.address))
        .and_then(|bytes| PythonVersion::from_hex(u32::from_le_bytes(bytes)))
        .map(|version| (version, VersionSource::PyVersion))
        .or_else(|| debug.as_ref().map(|debug| (debug.version, VersionSource::DebugOffsets)))
        .or_else(|| version_of_names(&image, path))
        .ok_or(InterpreterError::UnknownVersion)?;
    let evaluator = evaluator.and_then(|symbol| {
        let offset = image.offset(symbol.address)?;
        Some(Evaluator { address: symbol.address, offset, size: symbol.size })
    });
    Ok(Some(Interpreter {
        version,
        version_source,
        evaluator,
        runtime: runtime.map(|symbol| symbol.address),
        has_function_entry: image.has_probe("python", "function__entry"),
        is_free_threaded: debug.is_some_and(|debug| debug.free_threaded),
        has_jit,
    }))
}

/// The start of `_Py_DebugOffsets` (Include/internal/pycore_debug_offsets.h, 3.13+).
struct DebugOffsets {
    version: PythonVersion,
    free_threaded: bool,
}

impl DebugOffsets {
    fn read(image: &Image, runtime: VirtualAddress) -> Option<Self> {
        let bytes: [u8; 24] = image.read(runtime)?;
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        if !bytes.starts_with(b"xdebugpy") {
            return None;
        }
        let version = PythonVersion::from_hex(u32::try_from(word(8)?).ok()?)?;
        Some(Self { version, free_threaded: word(16)? != 0 })
    }
}

/// The version before 3.11. A file of these releases has the version only among its other texts. So the first
/// two numbers must agree with a name: the name of the file, of the library, or of the standard library's
/// folder.
fn version_of_names(image: &Image, path: &Path) -> Option<(PythonVersion, VersionSource)> {
    let texts = image.read_only_data(TEXT_LIMIT).unwrap_or_default();
    let texts = || texts.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let file = path.file_name().map(|name| name.to_string_lossy());
    let named = (image.soname().and_then(|name| version_in_name(&name)))
        .or_else(|| file.and_then(|name| version_in_name(&name)))
        .or_else(|| texts().find_map(|text| version_in_name(text.strip_prefix("lib/")?)))?;
    let agrees = |version: &PythonVersion| (version.major, version.minor) == (named.major, named.minor);
    let whole = texts().filter_map(PythonVersion::from_text).find(agrees);
    // The linker drops a text if another text ends with it. The other text may be the name of the
    // installation's folder.
    let full = whole.or_else(|| {
        let tail = |text: &'_ str| PythonVersion::from_text(&text[text.rfind('/')? + 1..]);
        let mut tails: Vec<_> = texts().filter_map(tail).filter(agrees).collect();
        tails.sort_unstable();
        tails.dedup();
        <[PythonVersion; 1]>::try_from(tails).ok().map(|[version]| version)
    });
    Some(match full {
        Some(version) => (version, VersionSource::VersionText),
        None => (named, VersionSource::Name),
    })
}

/// The two numbers in `python3.8`, `libpython3.7m.so.1.0`, `python3.13t`.
fn version_in_name(name: &str) -> Option<PythonVersion> {
    let name = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python")?;
    let (major, rest) = name.split_once('.')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = version::number(major).filter(|major| matches!(major, 2 | 3))?;
    Some(PythonVersion::new(major, version::number(rest.get(..digits)?)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs, io::Write, path::PathBuf};

    use super::*;
    use crate::python::pythons::{self, Python};

    /// The executable files that a process of this interpreter maps, as paths in our own file system.
    fn mapped_files(python: &Python) -> Vec<PathBuf> {
        let running = python.start(&[], "print('ready', flush=True)\nimport time; time.sleep(1000)");
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
        let mut paths: Vec<_> = maps
            .lines()
            .filter(|line| line.contains("r-xp"))
            .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
            .collect();
        paths.dedup();
        paths
    }

    #[test]
    fn every_python_here_is_recognised() {
        for python in pythons::all() {
            let found: Vec<_> = mapped_files(&python)
                .iter()
                .filter_map(|path| identify(&File::open(path).unwrap(), path).unwrap())
                .collect();
            let [interpreter] = &found[..] else { unreachable!("{python}: found {found:?}") };
            assert_eq!(interpreter.version.to_string(), python.version(), "{python}");
            let expected = match interpreter.version.minor {
                ..=10 => VersionSource::VersionText,
                _ => VersionSource::PyVersion,
            };
            assert_eq!(interpreter.version_source, expected, "{python}");
            assert!(interpreter.evaluator.is_some(), "{python}");
            assert_eq!(interpreter.is_free_threaded, python.is_free_threaded(), "{python}");
        }
    }

    #[test]
    fn the_evaluator_and_the_probe_are_those_that_other_tools_show() {
        for python in pythons::all() {
            for path in mapped_files(&python) {
                let Some(interpreter) = identify(&File::open(&path).unwrap(), &path).unwrap() else {
                    continue;
                };
                let tool = |program: &str, argument: &str| {
                    let output = std::process::Command::new(program).arg(argument).arg(&path).output();
                    String::from_utf8(output.unwrap().stdout).unwrap()
                };
                let address = interpreter.evaluator.unwrap().address.0;
                let expected = format!("{address:016x} T _PyEval_EvalFrameDefault");
                assert!(tool("nm", "-D").lines().any(|line| line == expected), "{python}");
                let has_probe = tool("readelf", "-n").contains("Name: function__entry");
                assert_eq!(interpreter.has_function_entry, has_probe, "{python}");
            }
        }
    }

    #[test]
    fn the_debug_offsets_agree_with_the_version() {
        for python in pythons::all().into_iter().filter(|python| python.minor() >= 13) {
            for path in mapped_files(&python) {
                let file = File::open(&path).unwrap();
                let Some(image) = Image::open(&file, &path).unwrap() else { continue };
                let [Some(runtime)] = image.symbols(&["_PyRuntime"], "-").unwrap().0[..] else { continue };
                let debug = DebugOffsets::read(&image, runtime.address).unwrap();
                assert_eq!(debug.version.to_string(), python.version());
                assert_eq!(debug.free_threaded, python.is_free_threaded());
            }
        }
    }

    #[test]
    fn other_files_are_no_interpreters() {
        let own = std::env::current_exe().unwrap();
        let text = Path::new("Cargo.toml");
        for path in [own.as_path(), text, Path::new("/dev/null")] {
            assert_eq!(identify(&File::open(path).unwrap(), path).unwrap(), None, "{}", path.display());
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        let Some(python) = pythons::all().into_iter().next_back() else { return };
        let whole = mapped_files(&python)
            .into_iter()
            .find(|path| identify(&File::open(path).unwrap(), path).unwrap().is_some())
            .map(|path| fs::read(path).unwrap())
            .unwrap();
        let judge = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            identify(&file, Path::new("x")).is_ok_and(|found| found.is_some())
        };
        for length in [0, 4, 16, 63, 64, 200, 4096, whole.len() / 2, whole.len() - 100] {
            judge(&whole[..length]);
        }
        // Changes every byte of the headers in turn, and some bytes around the dynamic symbols.
        let mut bytes = whole.clone();
        for at in 4..0x2e0 {
            bytes[at] ^= 0xff;
            judge(&bytes[..1 << 20]);
            bytes[at] ^= 0xff;
        }
        assert!(judge(&whole), "the undamaged file");
    }

    #[test]
    fn names_tell_two_numbers() {
        for (name, minor) in
            [("python3.8", 8), ("libpython3.7m.so.1.0", 7), ("python3.13t", 13), ("python3.9d", 9)]
        {
            assert_eq!(version_in_name(name), Some(PythonVersion::new(3, minor)), "{name}");
        }
        for name in ["python3", "python", "libpython3.so", "python4.1", "xpython3.8", "python3.x", ""] {
            assert_eq!(version_in_name(name), None, "{name}");
        }
    }
}
