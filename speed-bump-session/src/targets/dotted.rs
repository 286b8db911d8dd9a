//! Module names of Python files, from their paths alone: `/x/site-packages/json/decoder.py` may be
//! `json.decoder`, `site-packages.json.decoder`, and so on. We do not use `sys.path`.

use super::pattern::Pattern;

/// Whether we compare a module pattern with dotted names as well as with the path.
pub(super) fn applies(pattern: &Pattern) -> bool {
    let text = pattern.as_str();
    !(text.contains('/') || text == "*" || text.ends_with(".py") || text.ends_with('>'))
}

/// The module names that the file at `path` may have. A module name can start at some components of the path.
/// There is one module name for each of these components.
///
/// All these names are suffixes of one text: the path without `/__init__.py` or `.py`, with `.` for each `/`.
pub(super) struct DottedNames {
    dotted: String,
    starts: Vec<usize>,
}

impl DottedNames {
    pub(super) fn new(path: &str) -> Self {
        let module = path.strip_suffix("/__init__.py").or_else(|| path.strip_suffix(".py")).unwrap_or(path);
        let boundaries = module.match_indices('/').map(|(slash, _)| slash + 1);
        let starts = std::iter::once(0)
            .chain(boundaries)
            // No component starts before another `/`, or at the end.
            .filter(|&start| {
                module.get(start..).is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
            })
            .collect();
        Self { dotted: module.replace('/', "."), starts }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().filter_map(|&start| self.dotted.get(start..))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_path_gives_a_name_for_each_component() {
        for (path, names) in [
            ("/x/json/decoder.py", &["x.json.decoder", "json.decoder", "decoder"][..]),
            ("/x/json/__init__.py", &["x.json", "json"]),
            ("pkg/a.py", &["pkg.a", "a"]),
            ("a.py", &["a"]),
            ("__init__.py", &["__init__"]),
            ("/__init__.py", &[]),
            ("/x/python3.11/os.py", &["x.python3.11.os", "python3.11.os", "os"]),
            ("/usr/bin/tool", &["usr.bin.tool", "bin.tool", "tool"]),
            ("//x//é.py", &["x..é", "é"]),
            ("<string>", &["<string>"]),
            ("", &[]),
            ("/", &[]),
        ] {
            assert_eq!(DottedNames::new(path).iter().collect::<Vec<_>>(), names, "{path}");
        }
    }

    #[test]
    fn some_patterns_are_for_paths_only() {
        for (pattern, dotted) in [
            ("json.decoder", true),
            ("transformers.*", true),
            ("**", true),
            ("*json*", true),
            ("*", false),
            ("*.py", false),
            ("<string>", false),
            ("*/json/*", false),
        ] {
            assert_eq!(applies(&Pattern::new(pattern).unwrap()), dotted, "{pattern}");
        }
    }
}
