//! The code of a running process, compared with the files that it comes from: a probe site differs while a
//! uprobe is in it.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};

/// The offsets into a file at which the code that a process maps of it differs from the file, in order.
///
/// `path` is the file's on the host, and the process must show it under the same name.
pub fn differences(pid: i32, path: &Path) -> Result<Vec<u64>> {
    let of_process = |name: &str| format!("/proc/{pid}/{name}");
    let maps = fs::read_to_string(of_process("maps")).with_context(|| format!("no maps of process {pid}"))?;
    let memory = fs::File::open(of_process("mem")).with_context(|| format!("no memory of process {pid}"))?;
    let file = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut differences = Vec::new();
    let mut mapped = false;
    for line in maps.lines() {
        let Some((start, end, offset)) = executable_mapping(line, path) else { continue };
        mapped = true;
        let mut code = vec![0; usize::try_from(end - start)?];
        memory.read_exact_at(&mut code, start).with_context(|| format!("cannot read memory: {line}"))?;
        let in_file = file.get(usize::try_from(offset)?..).unwrap_or_default();
        let pairs = code.iter().zip(in_file).zip(offset..);
        differences.extend(pairs.filter(|((here, there), _)| here != there).map(|(_, offset)| offset));
    }
    ensure!(mapped, "process {pid} maps no code of {}", path.display());
    differences.sort_unstable();
    differences.dedup();
    Ok(differences)
}

/// Start, end and file offset of a mapping, if a line of /proc/PID/maps shows code of this file.
fn executable_mapping(line: &str, path: &Path) -> Option<(u64, u64, u64)> {
    // Five fields with single spaces, then padding and the path: proc_pid_maps(5).
    let mut fields = line.splitn(6, ' ');
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    if !rights.contains('x') || fields.nth(2)?.trim_start() != path.to_str()? {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?, number(offset)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::*;
    use crate::{Fixture, Service};

    #[test]
    fn code_is_as_in_the_file_until_someone_writes_to_it() {
        let fixture = Fixture::service().unwrap();
        let service = Service::start(Command::new(fixture.program()).arg("0")).unwrap();
        for file in [fixture.program(), &fixture.library()] {
            assert_eq!(differences(service.pid(), file).unwrap(), Vec::<u64>::new());
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", service.pid())).unwrap();
        let (start, _, offset) =
            maps.lines().find_map(|line| executable_mapping(line, fixture.program())).unwrap();
        let memory = fs::File::options().write(true).open(format!("/proc/{}/mem", service.pid())).unwrap();
        let byte = fs::read(fixture.program()).unwrap()[usize::try_from(offset).unwrap() + 3];
        memory.write_all_at(&[!byte], start + 3).unwrap();
        assert_eq!(differences(service.pid(), fixture.program()).unwrap(), [offset + 3]);
        assert!(differences(service.pid(), Path::new("/no/such")).is_err());
    }
}
