//! A profile in the file format of `cProfile` and `pstats`: a dict in the encoding of Python's `marshal`.
//!
//! Types are those of version 2 (`Python/marshal.c` of CPython 3.8 to 3.15 reads them all). A key is a tuple
//! of file, line and name. A value is a tuple of primitive calls, all calls, own and cumulative time in
//! seconds, and a dict of callers. For each caller, this dict has all calls, primitive calls and both times.

use super::{FunctionKey, Profile};

/// The file's bytes.
pub fn pstats(profile: &Profile) -> Vec<u8> {
    let mut bytes = vec![b'{'];
    for (key, entry) in &profile.functions {
        function(&mut bytes, key);
        tuple(&mut bytes, 5);
        whole(&mut bytes, entry.primitive_calls);
        whole(&mut bytes, entry.calls);
        seconds(&mut bytes, entry.own_ns);
        seconds(&mut bytes, entry.cumulative_ns);
        bytes.push(b'{');
        for (caller, entry) in profile.callers.get(key).into_iter().flatten() {
            function(&mut bytes, caller);
            tuple(&mut bytes, 4);
            // Callers have these two counts in the opposite order.
            whole(&mut bytes, entry.calls);
            whole(&mut bytes, entry.primitive_calls);
            seconds(&mut bytes, entry.own_ns);
            seconds(&mut bytes, entry.cumulative_ns);
        }
        bytes.push(b'0');
    }
    bytes.push(b'0');
    bytes
}

fn function(bytes: &mut Vec<u8>, key: &FunctionKey) {
    tuple(bytes, 3);
    text(bytes, &key.file);
    whole(bytes, key.line.into());
    text(bytes, &key.name);
}

fn tuple(bytes: &mut Vec<u8>, length: u32) {
    bytes.push(b'(');
    bytes.extend(length.to_le_bytes());
}

/// Writes a text in UTF-8.
fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'u');
    bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Writes an integer: in 31 bits if it fits, else in digits of 15 bits.
fn whole(bytes: &mut Vec<u8>, number: u64) {
    if let Ok(number) = i32::try_from(number) {
        bytes.push(b'i');
        bytes.extend(number.to_le_bytes());
        return;
    }
    let digits: Vec<u16> = std::iter::successors(Some(number), |rest| Some(rest >> 15))
        .take_while(|rest| *rest > 0)
        .map(|rest| (rest & 0x7fff) as u16)
        .collect();
    bytes.push(b'l');
    // There are at most five digits.
    bytes.extend((digits.len() as u32).to_le_bytes());
    digits.into_iter().for_each(|digit| bytes.extend(digit.to_le_bytes()));
}

fn seconds(bytes: &mut Vec<u8>, ns: u64) {
    bytes.push(b'g');
    bytes.extend((ns as f64 / 1e9).to_le_bytes());
}
