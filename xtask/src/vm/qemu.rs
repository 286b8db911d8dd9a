//! QEMU: fetching it, and its command line.
//!
//! An apt of our own fetches it, like the kernels, with all its libraries, and always from the same suite:
//! the facts below were measured with QEMU 7.2. Installing it would remove conflicting packages on some
//! systems.
//!
//! Without KVM it translates the guest's code (TCG). `thread=multi` then corrupts the guest when the kernel
//! patches its own text (12 of 12 stress runs), and `cmpxchg16b` crashes 6.12 (5 of 5).

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::places;
use crate::debian::{self, Archive};

const SUITE: &str = "bookworm";
const PACKAGE: &str = "qemu-system-x86";
/// Marks a complete folder; it lists the packages.
const STAMP: &str = "packages.txt";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Arguments for every guest's kernel. An emulated guest's clock is not steady enough for the kernel's own
/// tests of it. A panic ends the guest, since QEMU does not restart it. Without `cmpxchg16b`, kernels since
/// 7.0 give BPF programs memory only from checked caches (`kmalloc_nolock` in mm/slub.c).
const KERNEL_ARGUMENTS: &str = "console=ttyS0 tsc=reliable no_timer_check panic=-1 oops=panic loglevel=5 \
                                slab_debug=F,kmalloc-*";

/// An unpacked QEMU.
#[derive(Debug)]
pub(crate) struct Qemu {
    root: PathBuf,
}

/// A guest's machine.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    /// The kernel's image.
    pub(crate) kernel: &'a Path,
    /// More arguments for the kernel.
    pub(crate) arguments: &'a str,
    /// Its disks; their numbers in the guest vary.
    pub(crate) disks: &'a [Disk<'a>],
    /// Processors.
    pub(crate) processors: u32,
    /// Memory in MiB.
    pub(crate) memory_mib: u32,
}

/// A raw image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disk<'a> {
    /// Its serial number; the guest finds it by that.
    pub(crate) name: &'a str,
    /// The image.
    pub(crate) image: &'a Path,
    /// Whether the guest's writes stay in the image. Otherwise they are lost when the guest ends.
    pub(crate) is_written: bool,
}

/// Fetches QEMU, unless it is there; with `update` in any case.
pub(crate) fn ensure(update: bool) -> Result<Qemu> {
    let folder = places::qemu();
    let root = folder.join("root");
    if !update && folder.join(STAMP).is_file() {
        return Ok(Qemu { root });
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let archive = Archive::open(&folder.join("apt"), &[SUITE]).context("no QEMU")?;
    let Some(packages) = archive.download(&[PACKAGE])? else { bail!("Debian's {SUITE} has no {PACKAGE}") };
    let _ = fs::remove_file(folder.join(STAMP));
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    debian::prepare(&root, &[])?;
    debian::extract(&packages, &root)?;
    archive.clean()?;
    let names: String =
        packages.iter().filter_map(|file| file.file_name()).map(|n| format!("{}\n", n.display())).collect();
    fs::write(folder.join(STAMP), names).context("cannot write the list of QEMU's packages")?;
    Ok(Qemu { root })
}

impl Qemu {
    /// The command that runs a machine, with its console on standard input and output.
    pub(crate) fn command(&self, machine: &Machine) -> Command {
        let at = |path: &str| self.root.join(path);
        // QEMU ends when we end, in whatever way.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nice", "-n", "10"])
            // QEMU runs through its own dynamic loader, because the system's C library may be older.
            .arg(at("usr/lib64/ld-linux-x86-64.so.2"))
            .arg("--library-path")
            .arg(at(LIBRARIES))
            .arg(at("usr/bin/qemu-system-x86_64"))
            .env("QEMU_MODULE_DIR", at(&format!("{LIBRARIES}/qemu")));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(at(data));
        }
        command.args(arguments(machine));
        command
    }
}

/// QEMU's arguments for a machine.
fn arguments(machine: &Machine) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "-accel",
        "tcg,thread=single",
        "-cpu",
        "max,-cx16",
        "-nodefaults",
        "-no-reboot",
        "-display",
        "none",
        // On a terminal, Ctrl-C is for the guest.
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    add("-smp", machine.processors.to_string());
    add("-m", format!("{}M", machine.memory_mib));
    add("-kernel", machine.kernel.display().to_string());
    add("-append", format!("{KERNEL_ARGUMENTS} {}", machine.arguments));
    for disk in machine.disks {
        let snapshot = if disk.is_written { "off" } else { "on" };
        // In QEMU's lists a comma is doubled.
        let image = disk.image.display().to_string().replace(',', ",,");
        let name = disk.name;
        add("-drive", format!("id={name},if=none,format=raw,snapshot={snapshot},file={image}"));
        add("-device", format!("nvme,serial={name},drive={name}"));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_becomes_a_command_line() {
        let disks = [
            Disk { name: "root", image: Path::new("/a,b/root.img"), is_written: false },
            Disk { name: "results", image: Path::new("/results.img"), is_written: true },
        ];
        let machine = Machine {
            kernel: Path::new("/boot/vmlinuz-6.1"),
            arguments: "init=/guest/init",
            disks: &disks,
            processors: 2,
            memory_mib: 2048,
        };
        let line = arguments(&machine).join(" ");
        // Measured to be reliable; anything else corrupts the guest.
        for part in ["-accel tcg,thread=single ", "-cpu max,-cx16 ", "-no-reboot ", "-nodefaults "] {
            assert!(line.contains(part), "{part}: {line}");
        }
        for part in ["tsc=reliable no_timer_check panic=-1", "slab_debug=F,kmalloc-*", " init=/guest/init"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(line.contains("-smp 2 -m 2048M -kernel /boot/vmlinuz-6.1 -append console="), "{line}");
        assert!(line.contains("id=root,if=none,format=raw,snapshot=on,file=/a,,b/root.img"), "{line}");
        assert!(line.contains("id=results,if=none,format=raw,snapshot=off,file=/results.img"), "{line}");
        assert!(line.ends_with("-device nvme,serial=results,drive=results"), "{line}");
    }
}
