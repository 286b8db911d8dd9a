#![allow(clippy::unwrap_used, clippy::panic)]

use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::elf::{
    Functions, TableKind,
    fixture::{Fixture, PROGRAM},
};

const PATH: &str = "/opt/app/program";

/// A stripped program at `/opt/app/program` below a root, and its debug file outside of the root.
struct Split {
    fixture: Fixture,
    elf: ElfFile,
}

impl Split {
    fn new(options: &str) -> Self {
        Self::padded(options, 0)
    }

    /// The debug file has `padding` more bytes at its end.
    fn padded(options: &str, padding: u64) -> Self {
        let fixture = Fixture::new();
        fixture.compile("program.c", PROGRAM, options);
        fixture.run("objcopy", &["--only-keep-debug", "program", "program.debug"]);
        let debug = fs::OpenOptions::new().write(true).open(fixture.path("program.debug")).unwrap();
        debug.set_len(debug.metadata().unwrap().len() + padding).unwrap();
        fixture.run("strip", &["program"]);
        fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
        fs::create_dir_all(fixture.path("root/opt/app")).unwrap();
        fs::copy(fixture.path("program"), fixture.path("root/opt/app/program")).unwrap();
        let elf = ElfFile::open(&fixture.path("program")).unwrap();
        Self { fixture, elf }
    }

    fn install(&self, place: &str) -> PathBuf {
        let to = self.fixture.path(&format!("root{place}"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(self.fixture.path("program.debug"), &to).unwrap();
        to
    }

    fn functions(&self) -> Functions {
        let root = Root::open(&self.fixture.path("root")).unwrap();
        self.elf.functions_with_debug_files(&root, Path::new(PATH), &Effort::default()).unwrap()
    }

    /// Whether we know the local function, with the address of its code in the stripped file.
    fn knows_local(&self) -> bool {
        let functions = self.functions();
        let local = functions.functions().iter().find(|f| f.names.canonical().as_str() == "local");
        let Some(local) = local else { return false };
        assert_eq!(local.names.canonical().table(), TableKind::DebugFile);
        let bytes = fs::read(self.fixture.path("program")).unwrap();
        let code = &bytes[local.offset.0 as usize..][..local.size as usize];
        assert!(code.windows(4).any(|window| window == 0x10ca1_u32.to_le_bytes()));
        true
    }
}

#[test]
fn debug_files_are_found_by_build_id() {
    for options in ["-O1 -Wl,--build-id=sha1", "-O1 -Wl,--build-id=sha1 -no-pie -fno-pie"] {
        let split = Split::new(options);
        assert!(!split.knows_local());
        assert!(split.functions().warnings().is_empty());
        let id = split.elf.build_id().unwrap().unwrap();
        let place = build_id_path(&id).unwrap();
        let installed = split.install(place.to_str().unwrap());
        assert!(split.knows_local());
        // Distributions install links in this folder.
        let elsewhere = split.install("/usr/lib/debug/usr/bin/program.debug");
        fs::remove_file(&installed).unwrap();
        symlink("/usr/lib/debug/usr/bin/program.debug", &installed).unwrap();
        assert!(split.knows_local());
        // We do not follow a link there that leads out of the root.
        fs::remove_file(&elsewhere).unwrap();
        fs::remove_file(&installed).unwrap();
        symlink(split.fixture.path("program.debug"), &installed).unwrap();
        assert!(!split.knows_local());
    }
}

#[test]
fn debug_files_are_found_by_link() {
    for place in
        ["/opt/app/program.debug", "/opt/app/.debug/program.debug", "/usr/lib/debug/opt/app/program.debug"]
    {
        let split = Split::new("-O1 -Wl,--build-id=none");
        assert!(!split.knows_local());
        let installed = split.install(place);
        assert!(split.knows_local(), "{place}");
        // Changes one bit.
        let mut bytes = fs::read(&installed).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&installed, bytes).unwrap();
        assert!(!split.knows_local(), "{place}");
        let warnings = split.functions().warnings().join("\n");
        assert!(warnings.contains("its checksum is not the one in .gnu_debuglink"), "{warnings}");
    }
}

#[test]
fn debug_files_of_other_builds_are_refused() {
    let split = Split::new("-O1 -Wl,--build-id=sha1");
    let other = Split::new("-O2 -Wl,--build-id=sha1");
    let id = build_id_path(&split.elf.build_id().unwrap().unwrap()).unwrap();
    let installed = split.install(id.to_str().unwrap());
    fs::copy(other.fixture.path("program.debug"), &installed).unwrap();
    assert!(!split.knows_local());
    let warnings = split.functions().warnings().join("\n");
    assert!(warnings.contains("its build id differs"), "{warnings}");
    // A wrong file of any kind causes a warning, and reading goes on.
    for contents in ["", "text", "\x7fELF"] {
        fs::write(&installed, contents).unwrap();
        assert_eq!(split.functions().warnings().len(), 1);
    }
    fs::remove_file(&installed).unwrap();
    split.fixture.run("mkfifo", &[installed.to_str().unwrap()]);
    assert!(split.functions().warnings()[0].contains("is a pipe"));
}

#[test]
fn links_are_bare_names() {
    let link = |name: &[u8]| {
        let mut data = name.to_vec();
        data.push(0);
        data.resize(data.len().next_multiple_of(4), 0);
        data.extend(7_u32.to_le_bytes());
        DebugLink::parse(&data).map(|link| (link.name, link.checksum))
    };
    for name in ["a.debug", "ab.debug", "abc.debug", "abcd.debug"] {
        assert_eq!(link(name.as_bytes()), Some((name.to_owned(), 7)));
    }
    for name in [&b""[..], b".", b"..", b"../a", b"/etc/a", b"\xff"] {
        assert_eq!(link(name), None);
    }
    assert!(DebugLink::parse(b"a.debug").is_none());
    assert!(DebugLink::parse(b"a.debug\0\x01\x02").is_none());
}

#[test]
fn a_debug_file_that_cannot_be_opened_is_told() {
    let split = Split::new("-O1 -Wl,--build-id=sha1");
    let place = build_id_path(&split.elf.build_id().unwrap().unwrap()).unwrap();
    let installed = split.install(place.to_str().unwrap());
    fs::remove_file(&installed).unwrap();
    // Installs a link to itself.
    symlink(installed.file_name().unwrap(), &installed).unwrap();
    let warnings = split.functions().warnings().join("\n");
    assert!(warnings.contains("cannot be opened"), "{warnings}");
}

#[test]
fn a_checksum_is_that_of_the_whole_file() {
    // The file is longer than one read.
    let split = Split::padded("-O1 -Wl,--build-id=none", 300_000);
    let installed = split.install("/opt/app/program.debug");
    assert!(split.knows_local());
    // Nearly all of the file is a hole.
    fs::OpenOptions::new().write(true).open(installed).unwrap().set_len(4 << 30).unwrap();
    let warnings = split.functions().warnings().join("\n");
    assert!(warnings.contains("no checksum is made of a file with so many holes"), "{warnings}");
}

#[test]
fn checksums_of_all_debug_files_are_bounded_together() {
    let split = Split::new("-O1 -Wl,--build-id=none");
    let installed = split.install("/opt/app/program.debug");
    let root = Root::open(&split.fixture.path("root")).unwrap();
    let effort = Effort::of_checksums(fs::metadata(installed).unwrap().len());
    let warnings = || {
        let functions = split.elf.functions_with_debug_files(&root, Path::new(PATH), &effort).unwrap();
        functions.warnings().to_vec()
    };
    assert_eq!(warnings(), [""; 0]);
    let [warning] = &warnings()[..] else { panic!("{:?}", warnings()) };
    assert!(warning.contains("program.debug: its checksum is not made"), "{warning}");
    let over = Effort::default();
    over.ends_when(|| true);
    let functions = split.elf.functions_with_debug_files(&root, Path::new(PATH), &over).unwrap();
    assert!(functions.warnings()[0].contains("the session ends"), "{:?}", functions.warnings());
}

#[test]
fn build_ids_of_a_sensible_length_have_a_place() {
    let place = build_id_path(&[0xab, 0x01, 0xff]);
    assert_eq!(place, Some("/usr/lib/debug/.build-id/ab/01ff.debug".into()));
    for (length, has_place) in [(0, false), (1, false), (2, true), (64, true), (65, false)] {
        assert_eq!(build_id_path(&vec![7; length]).is_some(), has_place, "{length}");
    }
}
