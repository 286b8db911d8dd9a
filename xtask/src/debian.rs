//! Debian's packages, fetched (`archive`) and unpacked (`root`) beside the system and without its knowledge.

mod archive;
mod root;

pub(crate) use archive::{Archive, codename, mirror, ways_to_the_network};
pub(crate) use root::{extract, prepare};
