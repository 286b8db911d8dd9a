//! Finds folders that may contain an interpreter's standard library, from the files that its process maps.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use crate::python::version::PythonVersion;

/// The folder with the extensions of the standard library.
const EXTENSIONS: &str = "lib-dynload";
/// How many levels above the interpreter a prefix may be. For example, `libpython3.11.so` lies in
/// lib/x86_64-linux-gnu.
const ABOVE: usize = 4;

/// Folders that may contain the standard library of an interpreter. `program` is the path of the interpreter
/// (a program or `libpython`), and the process maps these files.
pub(super) fn folders<'a>(
    program: &Path,
    version: PythonVersion,
    mapped: impl Iterator<Item = &'a Path>,
) -> Vec<PathBuf> {
    let name = format!("python{}.{}", version.major, version.minor);
    // The standard library of /usr/bin/python3.11 is /usr/lib/python3.11. The root folder is no prefix.
    let prefixes = program.ancestors().skip(1).take(ABOVE).filter(|folder| folder.parent().is_some());
    let of_prefix = |prefix: &Path| {
        let folders = [prefix.join("lib").join(&name), prefix.join("lib64").join(&name), prefix.join(&name)];
        let free_threaded = |folder: &PathBuf| folder.with_extension(format!("{}t", version.minor));
        folders.iter().map(free_threaded).chain(folders.clone()).collect::<Vec<_>>()
    };
    let beside = mapped.filter_map(|file| {
        let is_it = |folder: &&Path| folder.file_name() == Some(OsStr::new(EXTENSIONS));
        file.parent().filter(is_it)?.parent().map(Path::to_path_buf)
    });
    let all: BTreeSet<PathBuf> = prefixes.flat_map(of_prefix).chain(beside).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_beside_the_interpreter_or_where_its_extensions_are() {
        let version = PythonVersion::new(3, 11);
        for (program, mapped, expected) in [
            ("/usr/bin/python3.11", "/usr/lib/libc.so", "/usr/lib/python3.11"),
            ("/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0", "", "/usr/lib/python3.11"),
            ("/opt/conda/bin/python3.11", "", "/opt/conda/lib/python3.11"),
            ("/opt/py/bin/python3.11t", "", "/opt/py/lib/python3.11t"),
            ("/app/embedding", "/srv/py/lib-dynload/_json.so", "/srv/py"),
        ] {
            let found = folders(Path::new(program), version, [Path::new(mapped)].into_iter());
            assert!(found.contains(&PathBuf::from(expected)), "{program}: {found:?}");
            assert!(!found.contains(&PathBuf::from("/lib/python3.11")), "{program}: {found:?}");
        }
    }
}
