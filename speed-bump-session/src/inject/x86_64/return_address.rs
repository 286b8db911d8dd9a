//! Recognises addresses to which a call returns.

/// The length of the longest call in bytes: opcode, ModRM, SIB, and 4 bytes of displacement.
pub(crate) const LONGEST_CALL: usize = 7;

/// Whether the bytes before an address end in a call: `call rel32` or `call r/m64` (Intel SDM, volume 2,
/// CALL).
pub(crate) fn is_behind_call(before: &[u8]) -> bool {
    let is =
        |length: usize, byte: usize| before.len().checked_sub(length).and_then(|at| before.get(at + byte));
    if is(5, 0) == Some(&0xe8) {
        return true;
    }
    (2..=LONGEST_CALL).any(|length| {
        is(length, 0) == Some(&0xff)
            && is(length, 1).is_some_and(|form| indirect_call_length(*form, is(length, 2)) == Some(length))
    })
}

/// The length of an indirect near call, from its ModRM and SIB bytes; `None` for another instruction.
fn indirect_call_length(form: u8, scale: Option<&u8>) -> Option<usize> {
    const NEAR_CALL: u8 = 2;
    let (mode, operation, base) = (form >> 6, form >> 3 & 7, form & 7);
    if operation != NEAR_CALL {
        return None;
    }
    let with_scale = usize::from(mode != 3 && base == 4);
    let displacement = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (0, 4) if scale.is_some_and(|scale| scale & 7 == 5) => 4,
        (1, _) => 1,
        _ => 0,
    };
    Some(2 + with_scale + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_known_by_their_bytes() {
        let calls: [&[u8]; 8] = [
            &[0xe8, 1, 2, 3, 4],
            &[0xff, 0xd0],                   // call rax
            &[0x41, 0xff, 0xd4],             // call r12
            &[0xff, 0x10],                   // call [rax]
            &[0xff, 0x50, 0x18],             // call [rax + 24]
            &[0xff, 0x15, 1, 2, 3, 4],       // call [rip + x]
            &[0xff, 0x54, 0x24, 0x18],       // call [rsp + 24]
            &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call [rax * 8 + x]
        ];
        for call in calls {
            let mut before = vec![0x90; 4];
            before.extend(call);
            assert!(is_behind_call(&before), "{call:x?}");
            assert!(is_behind_call(call), "{call:x?}");
        }
    }

    #[test]
    fn other_instructions_are_none() {
        let others: [&[u8]; 6] = [
            &[],
            &[0xe8],
            &[0x90; 7],
            &[0xff, 0xe0],             // jmp rax
            &[0xff, 0xd0, 0x90],       // call rax; nop
            &[0xff, 0x25, 1, 2, 3, 4], // jmp [rip + x]
        ];
        for other in others {
            assert!(!is_behind_call(other), "{other:x?}");
        }
    }
}
