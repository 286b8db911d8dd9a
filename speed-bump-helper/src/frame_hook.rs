//! Calls by a frame evaluation hook (PEP 523), from 3.8 to 3.11.

use speed_bump_abi::control_block::Failure;

use crate::{fault::Fault, python::gil::Python};

/// Has calls reported.
///
/// # Errors
/// [`Failure::Unsupported`].
pub(crate) fn install(_: Python<'_>) -> Result<(), Fault> {
    Err(Fault::new(Failure::Unsupported, &["calls are made visible from CPython 3.12 on"]))
}

/// After the selector changed.
///
/// # Errors
/// None: the hook compares epochs at each call.
pub(crate) fn rejudge(_: Python<'_>) -> Result<(), Fault> {
    Ok(())
}

/// Whether [`check`] is worth the GIL.
pub(crate) fn check_is_due() -> bool {
    false
}

/// What the user should hear of, as bits of `notice`.
pub(crate) fn check(_: Python<'_>) -> u32 {
    0
}

/// Undoes [`install`]; what the user should hear of, as bits of `notice`.
pub(crate) fn uninstall(_: Python<'_>) -> u32 {
    0
}
