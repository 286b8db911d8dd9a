//! What the tests of the kernel module share.

#![allow(clippy::unwrap_used)]

pub(crate) mod loaded;
pub(crate) mod session;
