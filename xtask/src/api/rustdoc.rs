//! What rustdoc says of the library and of the crates below it, as JSON: by the pinned nightly, whose format
//! the crate `public-api` reads.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use public_api::{Builder, PublicItem};
use rustdoc_types::{Crate, FORMAT_VERSION, Id};
use serde::Deserialize;
use speed_bump_testing::places;

use crate::{ebpf::toolchain, package, shell};

/// The library.
pub(super) const FACADE: &str = "speed_bump_user";

/// With which features the library is built.
#[derive(Clone, Copy)]
pub(super) enum Features {
    Default,
    None,
}

/// A crate as rustdoc sees it.
pub(super) struct Documented {
    pub(super) crate_: Crate,
    /// Its public items, in the order in which they are to be shown.
    pub(super) items: Vec<PublicItem>,
}

impl Documented {
    fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let of_version: Versioned = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what rustdoc writes", path.display()))?;
        if of_version.format_version != FORMAT_VERSION {
            bail!(
                "{} has format {}, and the crate rustdoc-types reads {FORMAT_VERSION}: with another nightly, \
                 xtask needs other versions of rustdoc-types and public-api",
                path.display(),
                of_version.format_version
            );
        }
        let crate_ = serde_json::from_str(&text)
            .with_context(|| format!("{} is not what rustdoc writes", path.display()))?;
        let api = Builder::from_rustdoc_json(path).omit_blanket_impls(true).build();
        let api = api.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { crate_, items: api.into_items().collect() })
    }

    /// The item with this path, if the crate defines it.
    pub(super) fn find(&self, path: &[String]) -> Option<Id> {
        let of_path = |(id, summary): (&Id, &rustdoc_types::ItemSummary)| {
            (summary.crate_id == 0 && summary.path == path).then_some(*id)
        };
        self.crate_.paths.iter().find_map(of_path)
    }
}

#[derive(Deserialize)]
struct Versioned {
    format_version: u32,
}

/// Documents the library and the crates below it. Returns them by name.
pub(super) fn document(features: Features) -> Result<HashMap<String, Documented>> {
    let names = package::published()?;
    let target = places::target().join("api");
    let mut command = toolchain::run_nightly("cargo")?;
    command
        .current_dir(places::root())
        .args(["doc", "--quiet", "--locked", "--no-deps", "--lib", "--target-dir"])
        .arg(&target)
        .args(match features {
            Features::Default => [].as_slice(),
            Features::None => &["--no-default-features"],
        })
        .args(names.iter().flat_map(|name| ["--package", name]))
        .env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json");
    shell::run(&mut command)?;
    let read = |name: &String| {
        let library = name.replace('-', "_");
        let file: PathBuf = target.join("doc").join(format!("{library}.json"));
        Ok((library, Documented::read(&file)?))
    };
    names.iter().map(read).collect()
}
