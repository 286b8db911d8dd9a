//! A Python file for module patterns: its path, and the dotted names that the path may stand for.

use crate::{Fingerprint, matcher::Reading};

/// A path, prepared for matching many patterns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'f> {
    pub(crate) path: &'f str,
    pub(crate) has: Fingerprint,
    /// The path less `/__init__.py` or `.py`.
    module: &'f str,
    /// The pairs that all its dotted names have.
    pub(crate) dotted_have: Fingerprint,
}

impl<'f> File<'f> {
    pub(crate) fn new(path: &'f str) -> Self {
        let module = path.strip_suffix("/__init__.py").or_else(|| path.strip_suffix(".py")).unwrap_or(path);
        let mut dotted_have = Fingerprint::from_bytes(module.bytes().map(|byte| Reading::Dotted.byte(byte)));
        for (before, byte) in module.bytes().zip(module.bytes().skip(1)) {
            if before == b'/' {
                dotted_have.add(Fingerprint::START, Reading::Dotted.byte(byte));
            }
        }
        Self { path, has: Fingerprint::from_text(path), module, dotted_have }
    }

    /// The names that the file may have as a module, one for each component at which they can start. Each `/`
    /// in them stands for `.`.
    pub(crate) fn dotted_names(&self) -> impl Iterator<Item = &'f str> {
        let module = self.module;
        let boundaries = module.match_indices('/').filter_map(move |(slash, _)| module.get(slash + 1..));
        // No component starts where the next `/` is, or at the end.
        core::iter::once(module).chain(boundaries).filter(|rest| !rest.is_empty() && !rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_path_gives_a_name_for_each_component() {
        for (path, names) in [
            ("/x/json/decoder.py", &["x/json/decoder", "json/decoder", "decoder"][..]),
            ("/x/json/__init__.py", &["x/json", "json"]),
            ("a.py", &["a"]),
            ("__init__.py", &["__init__"]),
            ("/__init__.py", &[]),
            ("//x//é.py", &["x//é", "é"]),
            ("<string>", &["<string>"]),
            ("", &[]),
            ("/", &[]),
        ] {
            let file = File::new(path);
            assert_eq!(file.dotted_names().collect::<Vec<_>>(), names, "{path}");
            for name in names {
                let has = Fingerprint::from_text(&name.replace('/', "."));
                assert!(file.dotted_have.contains(&has), "{path} {name}");
            }
        }
    }
}
