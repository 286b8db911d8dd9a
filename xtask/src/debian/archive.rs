//! An apt of our own for other Debian suites than the system's, from the system's mirror. It does not touch
//! the system's apt. apt verifies signatures and checksums.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    shell,
    system::{self, Need},
};

/// The keys for all signatures.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private apt folder with fresh package lists.
#[derive(Debug)]
pub(crate) struct Archive {
    configuration: PathBuf,
    packages: PathBuf,
    empty: PathBuf,
    sources: PathBuf,
}

impl Archive {
    /// Sets the folder up for these suites, and reads their package lists. apt takes the newest version that
    /// it finds in any of them.
    pub(crate) fn open(folder: &Path, suites: &[&str]) -> Result<Self> {
        if !system::is_debian() {
            bail!("Debian's packages are fetched with apt, which this system does not have");
        }
        // apt looks for a relative path below its own folders.
        let folder = &std::path::absolute(folder).with_context(|| format!("no {}", folder.display()))?;
        system::ensure(&[Need {
            program: KEYRING,
            package: "debian-archive-keyring",
            purpose: "to verify Debian's signatures",
        }])?;
        for part in [
            "state/lists/partial",
            "cache/archives/partial",
            "cache/empty/partial",
            "etc/apt.conf.d",
            "etc/preferences.d",
            "log",
        ] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let mirror = mirror(suites)?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        // Nothing is installed, so that apt names every library, the C library too.
        write("state/status", "")?;
        let suites = suites.join(" ");
        let sources = |types: &str| {
            format!(
                "Types: {types}\nURIs: {mirror}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n"
            )
        };
        write("etc/debian.sources", &sources("deb"))?;
        // Only `source` reads it: a long list that is seldom needed.
        write("source.sources", &sources("deb-src"))?;
        write("apt.conf", &configuration(folder)?)?;
        let archive = Self {
            configuration: folder.join("apt.conf"),
            packages: folder.join("cache/archives"),
            empty: folder.join("cache/empty"),
            sources: folder.join("source.sources"),
        };
        shell::output(archive.apt("apt-get").args(["update", "--error-on=any"]))
            .context("cannot read Debian's package lists")?;
        Ok(archive)
    }

    /// Downloads packages and all that they depend on. `None` if the archive does not have the first one.
    pub(crate) fn download(&self, packages: &[&str]) -> Result<Option<Vec<PathBuf>>> {
        let Some(package) = packages.first() else { return Ok(None) };
        if !self.has(package)? {
            return Ok(None);
        }
        let install = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
        // apt does not name packages that it already has, so start from an empty folder.
        let empty = format!("Dir::Cache::Archives={}", self.empty.display());
        let list = shell::output(
            self.apt("apt-get").args(["-o", &empty]).args(install).arg("--print-uris").args(packages),
        )?;
        let files: Vec<_> = files_of(&list).map(|file| self.packages.join(file)).collect();
        eprintln!("fetching {package}: {} packages", files.len());
        shell::output(self.apt("apt-get").args(install).arg("--download-only").args(packages))?;
        match files.iter().find(|file| !file.is_file()) {
            Some(file) => bail!("apt-get did not download {}", file.display()),
            None => Ok(Some(files)),
        }
    }

    /// Downloads a package, and those of its dependencies that are wanted, recursively. `None` if the archive
    /// does not have the first one.
    pub(crate) fn download_some(
        &self,
        package: &str,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<Vec<PathBuf>>> {
        if !self.has(package)? {
            return Ok(None);
        }
        let mut names = vec![package.to_owned()];
        let mut next = 0;
        while let Some(name) = names.get(next) {
            let list = shell::output(self.apt("apt-cache").args(["depends", name]))?;
            let more: Vec<_> =
                dependencies(&list).filter(|name| is_wanted(name)).map(str::to_owned).collect();
            for name in more {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            next += 1;
        }
        let download = ["download", "--quiet=2"];
        let in_packages = |command: &mut Command| {
            command.args(download).args(&names).current_dir(&self.packages);
        };
        let mut list = self.apt("apt-get");
        in_packages(list.arg("--print-uris"));
        let files: Vec<_> =
            files_of(&shell::output(&mut list)?).map(|file| self.packages.join(file)).collect();
        eprintln!("fetching {}", names.join(", "));
        let mut fetch = self.apt("apt-get");
        in_packages(&mut fetch);
        shell::output(&mut fetch)?;
        match files.iter().find(|file| !file.is_file()) {
            Some(file) => bail!("apt-get did not download {}", file.display()),
            None => Ok(Some(files)),
        }
    }

    /// The names of all packages with this prefix, one a line.
    pub(crate) fn names(&self, prefix: &str) -> Result<String> {
        shell::output(self.apt("apt-cache").args(["pkgnames", prefix]))
    }

    /// Removes the downloaded packages, once they are unpacked and only the lists are needed.
    pub(crate) fn clean(&self) -> Result<()> {
        shell::output(self.apt("apt-get").arg("clean")).map(drop)
    }

    /// Whether a package is available.
    fn has(&self, package: &str) -> Result<bool> {
        let policy = shell::output(self.apt("apt-cache").args(["policy", package]))?;
        Ok(policy.lines().any(|line| line.trim().starts_with("Candidate: ") && !line.contains("(none)")))
    }

    /// Downloads the upstream part of a source package from a suite, and returns its path.
    pub(crate) fn source(&self, package: &str, suite: &str, into: &Path) -> Result<PathBuf> {
        let with_sources = |command: &mut Command| {
            let list = format!("Dir::Etc::sourcelist={}", self.sources.display());
            command.args(["-o", &list, "-o", "Dir::Etc::sourceparts=-"]).current_dir(into);
        };
        let mut update = self.apt("apt-get");
        with_sources(&mut update);
        shell::output(update.args(["update", "--error-on=any", "--no-list-cleanup"]))
            .context("cannot read Debian's lists of sources")?;
        let mut fetch = self.apt("apt-get");
        with_sources(&mut fetch);
        let name = format!("{package}/{suite}");
        shell::output(fetch.args(["source", "--quiet=2", "--download-only", "--tar-only", &name]))
            .with_context(|| format!("the mirror lists {name} and does not have its source"))?;
        let is_archive = |path: &PathBuf| path.to_string_lossy().contains(".orig.tar.");
        let mut files = fs::read_dir(into)?.flatten().map(|entry| entry.path());
        files
            .find(|path| is_archive(path) && path.extension().is_some_and(|extension| extension != "asc"))
            .with_context(|| format!("the source of {package} has no .orig.tar"))
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", &self.configuration).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }
}

/// The files in the output of `--print-uris`: 'URI' FILE SIZE HASH.
fn files_of(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter(|line| line.starts_with('\'')).filter_map(|line| line.split(' ').nth(1))
}

/// The required packages in the output of `apt-cache depends`.
fn dependencies(list: &str) -> impl Iterator<Item = &str> {
    list.lines().filter_map(|line| {
        let (kind, name) = line.trim_start_matches([' ', '|']).split_once(": ")?;
        matches!(kind, "Depends" | "PreDepends").then_some(name)
    })
}

/// apt's settings: our folders, and the system's settings for the network.
fn configuration(folder: &Path) -> Result<String> {
    let acquire = network_settings()?;
    let folder = folder.display();
    Ok(format!(
        "Dir \"{folder}\";\n\
         Dir::State \"{folder}/state\";\n\
         Dir::State::status \"{folder}/state/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc \"{folder}/etc\";\n\
         Dir::Etc::sourcelist \"/dev/null\";\n\
         Dir::Etc::sourceparts \"{folder}/etc\";\n\
         Dir::Log \"{folder}/log\";\n\
         Acquire::Languages \"none\";\n\
         {acquire}"
    ))
}

/// The system's settings for fetching: proxies, certificates and the like.
pub(crate) fn network_settings() -> Result<String> {
    let system = shell::output(Command::new("apt-config").args(["dump", "Acquire"]))?;
    let acquire = system.lines().filter(|line| {
        // Which other packages the system fetches does not matter here.
        !["Acquire::IndexTargets", "Acquire::Languages", "Acquire::GzipIndexes", "Acquire::CompressionTypes"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    Ok(acquire.map(|line| format!("{line}\n")).collect())
}

/// The name of this system's Debian release, such as `bookworm`.
pub(crate) fn codename() -> Result<String> {
    let os_release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    if field("ID").as_deref() != Some("debian") {
        bail!("this system is not Debian, so that its mirror has no other Debian suites");
    }
    field("VERSION_CODENAME").context("/etc/os-release names no VERSION_CODENAME")
}

/// The mirror from which this system gets Debian itself.
pub(crate) fn mirror(suites: &[&str]) -> Result<String> {
    let codename = codename()?;
    let targets = shell::output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    ]))?;
    targets
        .lines()
        .find_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            // Suite or codename; a third party's repository has another component, or fails the signature.
            [uri, release, "main"] if release == codename || suites.contains(&release) => {
                Some(uri.to_owned())
            }
            _ => None,
        })
        .with_context(|| format!("no apt source of this system is Debian {codename}, component main"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_files_are_read() {
        let list = "Reading package lists...\n\
                    'http://mirror/pool/l/linux_6.1.deb' linux_6.1.deb 30000 SHA256:ab\n\
                    'http://mirror/pool/k/kmod_30%2b1.deb' kmod_30%2b1.deb 90 SHA256:cd\n";
        assert_eq!(files_of(list).collect::<Vec<_>>(), ["linux_6.1.deb", "kmod_30%2b1.deb"]);
    }

    #[test]
    fn dependencies_are_told_from_what_is_recommended() {
        let list = "linux-image-6.1.0-40-cloud-amd64\n  PreDepends: dpkg\n  Depends: kmod\n |Depends: \
                    initramfs-tools\n  Depends: <linux-initramfs-tool>\n    dracut\n  Breaks: fwupdate\n  \
                    Recommends: firmware\n";
        let found: Vec<_> = dependencies(list).collect();
        assert_eq!(found, ["dpkg", "kmod", "initramfs-tools", "<linux-initramfs-tool>"]);
    }
}
