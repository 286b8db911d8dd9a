//! Reads the records that BPF programs write, from the bytes of a ring buffer.

/// Reads a record from the start of `bytes`. Returns `None` if there are too few bytes.
pub fn read<T: aya::Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and all bytes make a valid `Pod`.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_records_are_refused() {
        assert_eq!(read::<u32>(&[1, 0, 0]), None);
        assert_eq!(read::<u32>(&[1, 0, 0, 0]), Some(u32::from_le(1)));
        assert_eq!(read::<u32>(&[1, 0, 0, 0, 9]), Some(u32::from_le(1)));
    }
}
