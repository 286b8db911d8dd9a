//! The helper's shared object, as it goes into processes.

/// The image that this loader carries: a 64-bit ELF file for the processor it was built for.
pub static IMAGE: &[u8] = include_bytes!(env!("SPEED_BUMP_HELPER_IMAGE"));
