//! Tests with texts that we wrote, and with the standard library of every Python on this machine.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::python::pythons::{self, Python};

mod library;
mod names;

fn index(text: &str, minor: u8) -> SourceIndex {
    SourceIndex::parse(text.as_bytes(), PythonVersion::new(3, minor)).unwrap()
}
