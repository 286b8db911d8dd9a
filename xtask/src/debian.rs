//! Debian's packages, fetched (`archive`) and unpacked (`root`) without touching the system.

mod archive;
mod root;

pub(crate) use archive::{Archive, codename, mirror, network_settings};
pub(crate) use root::{extract, prepare};
