//! An apt of our own: other suites of Debian, from the mirror that this system uses, beside the system's apt
//! and without its knowledge. apt verifies signatures and checksums.

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

/// Suites that are read together. Others have a folder of their own: a suite that leaves the mirror, as old ones do
/// one day, takes nothing else with it, and libraries come from where the Python comes from.
#[derive(Debug)]
pub(super) struct Suites {
    /// The folder in target/pythons.
    folder: &'static str,
    names: &'static [&'static str],
}

/// Where newer Pythons are, the steadiest first. apt takes the newest version that it finds; experimental only
/// counts for what is nowhere else.
pub(super) const NEWER: Suites = Suites { folder: "apt", names: &["trixie", "forky", "sid", "experimental"] };

/// Debian 11: the last with a glibc of several libraries (2.31).
pub(super) const OLDER: Suites = Suites { folder: "apt-bullseye", names: &["bullseye"] };

/// What every signature is checked against.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private apt folder with fresh package lists.
#[derive(Debug)]
pub(super) struct Archive {
    configuration: PathBuf,
    packages: PathBuf,
    empty: PathBuf,
    sources: PathBuf,
}

impl Archive {
    /// Sets its folder up, in this one, and reads the package lists.
    pub(super) fn open(folder: &Path, suites: &Suites) -> Result<Self> {
        let folder = &folder.join(suites.folder);
        if !system::is_debian() {
            bail!("Debian's Pythons are fetched with apt, which this system does not have");
        }
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
        let mirror = mirror()?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        // Nothing is installed: apt shall name every library, the C library too.
        write("state/status", "")?;
        let suites = suites.names.join(" ");
        let sources = |types: &str| {
            format!(
                "Types: {types}\nURIs: {mirror}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n"
            )
        };
        write("etc/debian.sources", &sources("deb"))?;
        // Read by `source` alone: a long list that is seldom wanted.
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

    /// Downloads packages and all that they depend on. `None` if the archive does not have the first.
    pub(super) fn download(&self, packages: &[&str]) -> Result<Option<Vec<PathBuf>>> {
        let Some(package) = packages.first() else { return Ok(None) };
        let policy = shell::output(self.apt("apt-cache").args(["policy", package]))?;
        if !policy.lines().any(|line| line.trim().starts_with("Candidate: ") && !line.contains("(none)")) {
            return Ok(None);
        }
        let install = ["install", "--yes", "--quiet=2", "--no-install-recommends"];
        // apt does not name what it has already: look from a folder that has nothing.
        let empty = format!("Dir::Cache::Archives={}", self.empty.display());
        let list = shell::output(
            self.apt("apt-get").args(["-o", &empty]).args(install).arg("--print-uris").args(packages),
        )?;
        // 'URI' FILE SIZE HASH
        let files: Vec<_> = list
            .lines()
            .filter(|line| line.starts_with('\''))
            .filter_map(|line| line.split(' ').nth(1))
            .map(|file| self.packages.join(file))
            .collect();
        eprintln!("fetching {package}: {} packages", files.len());
        shell::output(self.apt("apt-get").args(install).arg("--download-only").args(packages))?;
        match files.iter().find(|file| !file.is_file()) {
            Some(file) => bail!("apt-get did not download {}", file.display()),
            None => Ok(Some(files)),
        }
    }

    /// Downloads the upstream part of a source package, as a suite has it, and returns the archive's path.
    pub(super) fn source(&self, package: &str, suite: &str, into: &Path) -> Result<PathBuf> {
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

/// apt's settings: our folders, and the system's ways to reach the network.
fn configuration(folder: &Path) -> Result<String> {
    let system = shell::output(Command::new("apt-config").args(["dump", "Acquire"]))?;
    let acquire = system.lines().filter(|line| {
        // What to fetch beside packages is the system's own business.
        !["Acquire::IndexTargets", "Acquire::Languages", "Acquire::GzipIndexes", "Acquire::CompressionTypes"]
            .iter()
            .any(|name| line.starts_with(name))
    });
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
         {}\n",
        acquire.collect::<Vec<_>>().join("\n")
    ))
}

/// The mirror that this system takes Debian itself from.
fn mirror() -> Result<String> {
    let os_release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    if field("ID").as_deref() != Some("debian") {
        bail!("this system is not Debian, so that its mirror has no newer Debian suites");
    }
    let codename = field("VERSION_CODENAME").context("/etc/os-release names no VERSION_CODENAME")?;
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
            [uri, release, "main"] if release == codename || NEWER.names.contains(&release) => {
                Some(uri.to_owned())
            }
            _ => None,
        })
        .with_context(|| format!("no apt source of this system is Debian {codename}, component main"))
}
