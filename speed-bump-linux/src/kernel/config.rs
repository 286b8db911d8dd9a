//! The options of the running kernel's build.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Read},
};

/// The options that are set, built in or as modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelConfig {
    set: HashSet<String>,
}

impl KernelConfig {
    /// Reads /proc/config.gz (CONFIG_IKCONFIG_PROC), or the file that distributions install with the kernel.
    /// `None` if there is neither.
    pub fn read(release: &str) -> Option<Self> {
        let running = File::open("/proc/config.gz").and_then(|file| {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(file).take(MAX_BYTES).read_to_end(&mut text)?;
            Ok(text)
        });
        running
            .or_else(|_| read_limited(&format!("/boot/config-{release}")))
            .or_else(|_| read_limited(&format!("/lib/modules/{release}/config")))
            .ok()
            .map(|text| Self::parse(&text))
    }

    /// Parses the text of a configuration: a line `CONFIG_X=y` for each option.
    pub fn parse(text: &[u8]) -> Self {
        let set = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let option = line.strip_suffix(b"=y").or_else(|| line.strip_suffix(b"=m"))?;
            str::from_utf8(option).ok().map(str::to_owned)
        });
        Self { set: set.collect() }
    }

    /// Whether an option is set. `option` includes `CONFIG_`.
    pub fn has(&self, option: &str) -> bool {
        self.set.contains(option)
    }
}

/// The most bytes that we read: far more than any configuration has (about 300 kB).
const MAX_BYTES: u64 = 16 << 20;

fn read_limited(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let config = KernelConfig::parse(
            b"#\n# Automatically generated\n#\nCONFIG_BPF=y\nCONFIG_X=m\n# CONFIG_OFF is not \
              set\nCONFIG_N=8\n\xff=y\n",
        );
        assert!(config.has("CONFIG_BPF") && config.has("CONFIG_X"));
        assert!(!config.has("CONFIG_OFF") && !config.has("CONFIG_N") && !config.has("CONFIG_BP"));
    }
}
