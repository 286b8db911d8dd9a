//! The lines of the file: each public item of the library, by the name that its users have for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context as _, Result, bail};
use public_api::PublicItem;
use rustdoc_types::{Id, ItemEnum};

use super::rustdoc::{Documented, FACADE, Features, document};

/// Automatic traits that users of a library think of.
const TOLD_TRAITS: [&str; 2] = ["core::marker::Send", "core::marker::Sync"];

/// An item of a crate below that the library exports.
struct Exported {
    /// Its paths in that crate: where it is defined, and where the crate exports it.
    paths: BTreeSet<String>,
    /// Its path in the library.
    name: String,
}

/// The interface of the library with these features.
pub(super) fn lines(features: Features) -> Result<Vec<String>> {
    interface_of(&document(features)?)
}

/// The lines of the library's interface, from what rustdoc documented of all crates.
fn interface_of(crates: &HashMap<String, Documented>) -> Result<Vec<String>> {
    let facade = crates.get(FACADE).with_context(|| format!("rustdoc documented no {FACADE}"))?;
    let (mut lines, mut from_below, mut names) = (Vec::new(), BTreeMap::new(), Vec::new());
    for item in &facade.items {
        let Some(path) = foreign(facade, item)? else {
            lines.extend(told(facade, item));
            continue;
        };
        let name = item.to_string().trim_start_matches("pub use ").to_owned();
        let (paths, parts) = exported(crates, &path).with_context(|| format!("cannot follow {name}"))?;
        from_below.insert(name.clone(), parts);
        names.push(Exported { paths, name });
    }
    lines.extend(from_below.into_values().flatten());
    // What a crate below exports by two paths has one name here.
    let mut seen = BTreeSet::new();
    let lines = lines.iter().map(|line| renamed(line, &names));
    Ok(lines.filter(|line| seen.insert(line.clone())).collect())
}

/// The paths of an item in the crate that defines it, and the lines of the item and its parts.
fn exported(
    crates: &HashMap<String, Documented>,
    path: &[String],
) -> Result<(BTreeSet<String>, Vec<String>)> {
    let krate = path.first().map(String::as_str).unwrap_or_default();
    let Some(below) = crates.get(krate) else { bail!("{krate} is no published crate of the workspace") };
    let Some(root) = below.find(path) else { bail!("rustdoc does not list {}", path.join("::")) };
    let parents: HashMap<Id, Option<Id>> =
        below.items.iter().map(|item| (item.id(), item.parent_id())).collect();
    let mut paths = BTreeSet::from([path.join("::")]);
    let own = below.items.iter().filter(|item| item.id() == root);
    paths.extend(own.filter_map(|item| path_in(&item.to_string(), krate)));
    let parts = below.items.iter().filter(|item| belongs(item.id(), root, &parents));
    let lines: Vec<_> = parts.filter_map(|item| told(below, item)).collect();
    if lines.is_empty() {
        bail!("{} has no public items", path.join("::"));
    }
    Ok((paths, lines))
}

/// The first path in a line that begins with this crate.
fn path_in(line: &str, krate: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("{krate}::"))?;
    let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
    Some(format!("{krate}::{}", rest.get(..end)?.trim_end_matches(':')))
}

/// The path of an item of another crate, if that is what this one exports.
fn foreign(facade: &Documented, item: &PublicItem) -> Result<Option<Vec<String>>> {
    let Some(exported) = facade.crate_.index.get(&item.id()) else { return Ok(None) };
    let ItemEnum::Use(export) = &exported.inner else { return Ok(None) };
    let summary = export.id.and_then(|id| facade.crate_.paths.get(&id));
    match summary {
        Some(summary) if !export.is_glob => Ok(Some(summary.path.clone())),
        _ => bail!("`{item}`: what that exports cannot be told; name the items that are meant"),
    }
}

/// Whether an item is `root`, or part of it.
fn belongs(id: Id, root: Id, parents: &HashMap<Id, Option<Id>>) -> bool {
    let mut next = Some(id);
    // Paths are short. The limit ends the search if a path leads in a circle.
    for _ in 0..parents.len() {
        match next {
            Some(id) if id == root => return true,
            Some(id) => next = parents.get(&id).copied().flatten(),
            None => return false,
        }
    }
    false
}

/// The line of an item; `None` if other lines of its type say the same.
fn told(documented: &Documented, item: &PublicItem) -> Option<String> {
    let index = &documented.crate_.index;
    let inner = |id: Id| index.get(&id).map(|item| &item.inner);
    match inner(item.id()) {
        Some(ItemEnum::Impl(implementation)) => {
            let of_trait = implementation.trait_.as_ref()?;
            let line = item.to_string();
            let is_told = TOLD_TRAITS.iter().any(|name| line.contains(name));
            if implementation.is_synthetic && !is_told {
                return None;
            }
            // Derives implement this trait beside `PartialEq`.
            (of_trait.path != "StructuralPartialEq").then_some(line)
        }
        Some(ItemEnum::Function(_)) => {
            let parent = item.parent_id().and_then(inner);
            let is_of_trait =
                matches!(parent, Some(ItemEnum::Impl(implementation)) if implementation.trait_.is_some());
            (!is_of_trait).then(|| item.to_string())
        }
        _ => Some(item.to_string()),
    }
}

/// A line with the library's names in place of those of the crates below.
fn renamed(line: &str, names: &[Exported]) -> String {
    let mut line = line.to_owned();
    for (path, name) in names.iter().flat_map(|of| of.paths.iter().map(move |path| (path, &of.name))) {
        line = replaced(&line, path, name);
    }
    line
}

/// Replaces `from` by `to` in `line`, except where `from` is part of a longer name.
fn replaced(line: &str, from: &str, to: &str) -> String {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let (mut text, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(from) {
        let (before, after) = rest.split_at(at);
        let after = after.get(from.len()..).unwrap_or_default();
        let is_whole = !before.ends_with(|c: char| is_word(c) || c == ':') && !after.starts_with(is_word);
        text.push_str(before);
        text.push_str(if is_whole { to } else { from });
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_names_alone_are_replaced() {
        let exported = |paths: &[&str], name: &str| Exported {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            name: name.to_owned(),
        };
        let names = [exported(&["a::b::Dose", "a::Dose"], "f::Dose"), exported(&["a::csv"], "f::csv")];
        let line =
            "pub fn a::b::Dose::of(a::b::DoseError, &a::b::Dose) -> xa::b::Dose, a::csv::render, a::Dose";
        let wanted = "pub fn f::Dose::of(a::b::DoseError, &f::Dose) -> xa::b::Dose, f::csv::render, f::Dose";
        assert_eq!(renamed(line, &names), wanted);
    }

    #[test]
    fn a_path_in_a_line_ends_with_its_last_name() {
        let of = |line| path_in(line, "a");
        assert_eq!(of("pub struct a::b::List<T>").as_deref(), Some("a::b::List"));
        assert_eq!(of("pub const a::N: u32").as_deref(), Some("a::N"));
        assert_eq!(of("pub fn b::c()"), None);
    }

    #[test]
    fn parts_belong_to_what_they_are_part_of() {
        let parents = HashMap::from([
            (Id(1), None),
            (Id(2), Some(Id(1))),
            (Id(3), Some(Id(2))),
            (Id(4), Some(Id(5))),
            (Id(5), Some(Id(4))),
        ]);
        assert!(belongs(Id(3), Id(1), &parents) && belongs(Id(1), Id(1), &parents));
        assert!(!belongs(Id(1), Id(2), &parents));
        assert!(!belongs(Id(4), Id(1), &parents) && !belongs(Id(9), Id(1), &parents));
    }
}
