//! Reads `targets_list`: a line for each target in the module, of all its users.
//!
//! The list may contain any user's text, and later modules may add fields. So we ignore fields that we do not
//! know.

use crate::units::Nanos;

/// All targets in the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The targets, in the order in which they were added.
    pub targets: Vec<Listed>,
}

/// A target in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The name, `PATH:SYMBOL`.
    pub name: String,
    /// The delay of each call.
    pub delay: Nanos,
    /// The number of delayed calls.
    pub hits: u64,
    /// The process to which the target applies, as written; `None`: every process.
    pub process: Option<i32>,
    /// The time that the module has spun.
    pub injected: Nanos,
    /// The number of delays that ended early.
    pub interrupted: u64,
    /// The state of the target's file; `None` if the module does not give it.
    pub file: Option<FileState>,
}

/// The state of a target's file since the target was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// The file is the same as when the target was added.
    Current,
    /// The path now leads to another file, and the module does not slow down that file.
    Replaced,
    /// Someone has written to the file.
    Modified,
    /// The path leads to no file any more.
    Missing,
}

impl Listing {
    /// Reads the text of the file. Ignores lines without a name or a delay.
    pub fn parse(text: &str) -> Self {
        Self { targets: text.lines().filter_map(Listed::parse).collect() }
    }

    /// The target with this name.
    pub fn find(&self, name: &str) -> Option<&Listed> {
        self.targets.iter().find(|target| target.name == name)
    }
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let name = words.next().filter(|name| name.contains(':'))?;
        let mut listed = Self { name: name.to_owned(), ..Self::default() };
        let mut has_delay = false;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let number = || value.parse().ok();
            match key {
                "delay_ns" => {
                    listed.delay = Nanos(number()?);
                    has_delay = true;
                }
                "hits" => listed.hits = number()?,
                "injected_ns" => listed.injected = Nanos(number()?),
                "interrupted" => listed.interrupted = number()?,
                "pid" => listed.process = Some(value.parse().ok()?),
                "file" => listed.file = FileState::parse(value),
                _ => {}
            }
        }
        has_delay.then_some(listed)
    }
}

impl FileState {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "current" => Some(Self::Current),
            "replaced" => Some(Self::Replaced),
            "modified" => Some(Self::Modified),
            "missing" => Some(Self::Missing),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read() {
        let text = "/usr/lib/a.so:f delay_ns=100000 hits=1523 pid=77 injected_ns=152331764 interrupted=2 \
                    file=replaced\n\
                    /b:g delay_ns=0 hits=0 injected_ns=0 interrupted=0 file=current more=1 words\n";
        let expected = [
            Listed {
                name: "/usr/lib/a.so:f".into(),
                delay: Nanos(100_000),
                hits: 1523,
                process: Some(77),
                injected: Nanos(152_331_764),
                interrupted: 2,
                file: Some(FileState::Replaced),
            },
            Listed { name: "/b:g".into(), file: Some(FileState::Current), ..Listed::default() },
        ];
        let listing = Listing::parse(text);
        assert_eq!(listing.targets, expected);
        assert_eq!(listing.find("/b:g"), Some(&expected[1]));
        assert_eq!(listing.find("/b"), None);
    }

    #[test]
    fn what_is_no_target_is_left_out() {
        for line in [
            "",
            " ",
            "word",
            "/a:f",
            "/a:f hits=1",
            "/a:f delay_ns=",
            "/a:f delay_ns=-1",
            "/a:f delay_ns=1 hits=x",
        ] {
            assert_eq!(Listing::parse(line), Listing::default(), "{line:?}");
        }
        assert_eq!(Listing::parse("rubbish\n/a:f delay_ns=1\n\n").targets.len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(.|\n){0,400}") {
            let listing = Listing::parse(&text);
            prop_assert!(listing.targets.iter().all(|target| target.name.contains(':')));
        }

        #[test]
        fn what_the_module_writes_comes_back(
            targets in prop::collection::vec(
                ("/[a-z:]{0,20}", "[a-zA-Z_0-9.]{1,20}", any::<[u64; 4]>(), prop::option::of(1..i32::MAX)),
                0..70,
            ),
        ) {
            let mut text = String::new();
            let mut expected = Vec::new();
            for (path, symbol, [delay, hits, injected, interrupted], process) in targets {
                let pid = process.map(|pid| format!(" pid={pid}")).unwrap_or_default();
                text += &format!(
                    "{path}:{symbol} delay_ns={delay} hits={hits}{pid} injected_ns={injected} \
                     interrupted={interrupted} file=current\n"
                );
                expected.push(Listed {
                    name: format!("{path}:{symbol}"),
                    delay: Nanos(delay),
                    hits,
                    process,
                    injected: Nanos(injected),
                    interrupted,
                    file: Some(FileState::Current),
                });
            }
            prop_assert_eq!(Listing::parse(&text).targets, expected);
        }
    }
}
