//! CPython as the helper uses it: functions found at run time, and as few assumptions about memory layout as
//! possible.

pub(crate) mod api;
pub(crate) mod code;
pub(crate) mod frozen;
pub(crate) mod gil;
pub(crate) mod interpreters;
pub(crate) mod kept;
pub(crate) mod made;
pub(crate) mod members;
pub(crate) mod object;
pub(crate) mod said;
pub(crate) mod text;
pub(crate) mod turn;
pub(crate) mod version;
