//! Whose code a function is.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Whose code a function is: what its author can change comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The service's own Python code.
    Service,
    /// In a record from before origins.
    #[default]
    Unknown,
    /// The standard library, or an installed package.
    Library,
    /// Native code.
    Native,
}

/// Folders of installed packages (site.py, and Debian's).
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];
/// Beginnings of the names that an interpreter gives to the code of a program that has no file. Names in `<>`
/// with other beginnings belong to code that libraries generate, or to frozen modules of the standard
/// library.
const OF_PROGRAMS: [&str; 5] = ["<string>", "<stdin>", "<console>", "<ipython-input", "<unknown>"];

impl Origin {
    /// Whose code a Python function is, by its file and the folders in which its interpreter may have its
    /// standard library. An editable install is the service's own.
    pub fn of_python(file: &Path, standard_library: &[PathBuf]) -> Self {
        let text = file.to_string_lossy();
        if text.starts_with('<') {
            let is_programs = OF_PROGRAMS.iter().any(|of| text.starts_with(of));
            return if is_programs { Self::Service } else { Self::Library };
        }
        let parts = || file.components();
        let is_installed = parts().any(|part| INSTALLED.iter().any(|of| part.as_os_str() == *of));
        let is_standard = standard_library.iter().any(|folder| file.starts_with(folder));
        let is_of_python = || {
            let before = parts().zip(parts().skip(1));
            before.into_iter().any(|(folder, part)| is_standard_library(folder, part))
        };
        if is_installed || is_standard || is_of_python() { Self::Library } else { Self::Service }
    }
}

/// `lib/python3.11`, or `python311.zip`: where CPython looks for its own modules (getpath.py).
fn is_standard_library(folder: Component<'_>, part: Component<'_>) -> bool {
    let name = part.as_os_str().to_string_lossy();
    let Some(version) = name.strip_prefix("python") else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(version) = version.strip_suffix(".zip") {
        return is_number(version);
    }
    let is_lib = folder.as_os_str() == "lib" || folder.as_os_str() == "lib64";
    let minor = version.strip_prefix("3.").map(|minor| minor.strip_suffix('t').unwrap_or(minor));
    is_lib && minor.is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_whose_code_they_are() {
        let standard_library = [PathBuf::from("/opt/relocated/py")];
        for (file, expected) in [
            ("/srv/app/main.py", Origin::Service),
            ("main.py", Origin::Service),
            ("/home/me/venv/src/app.py", Origin::Service),
            ("/usr/share/tool/app.py", Origin::Service),
            ("/usr/bin/gunicorn", Origin::Service),
            // An editable install, and a folder that only looks like a library.
            ("/src/package/python3.11/app.py", Origin::Service),
            ("/srv/site-packages.d/app.py", Origin::Service),
            ("/opt/relocated/python/app.py", Origin::Service),
            ("<string>", Origin::Service),
            ("<stdin>", Origin::Service),
            ("<ipython-input-3-f1>", Origin::Service),
            ("/usr/lib/python3.11/json/encoder.py", Origin::Library),
            ("/usr/lib64/python3.9/json/encoder.py", Origin::Library),
            ("/opt/py/lib/python3.13t/json/encoder.py", Origin::Library),
            ("/root/.pyenv/versions/3.8.20/lib/python3.8/threading.py", Origin::Library),
            ("/opt/conda/lib/python3.10/site-packages/numpy/core/numeric.py", Origin::Library),
            ("/home/me/venv/lib/python3.12/site-packages/flask/app.py", Origin::Library),
            ("/usr/lib/python3/dist-packages/yaml/__init__.py", Origin::Library),
            ("/usr/local/lib/python3.11/dist-packages/gunicorn/sock.py", Origin::Library),
            ("/usr/lib/python311.zip/os.py", Origin::Library),
            ("/opt/relocated/py/os.py", Origin::Library),
            ("<frozen importlib._bootstrap>", Origin::Library),
            ("<attrs generated init app.Row>", Origin::Library),
        ] {
            assert_eq!(Origin::of_python(Path::new(file), &standard_library), expected, "{file}");
        }
    }
}
