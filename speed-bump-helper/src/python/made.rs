//! Lists the functions that a code object makes, with the qualified names that the compiler gave them.
//!
//! Up to 3.10 a code object does not hold its own qualified name. The code around it does, which makes a
//! function of it: that code loads the name, a constant, just before MAKE_FUNCTION (compiler_make_closure in
//! Python/compile.c).

use super::{code::Code, text::Utf8};

// Lib/opcode.py, the same from 3.8 to 3.10.
const LOAD_CONST: u8 = 100;
const MAKE_FUNCTION: u8 = 132;
const EXTENDED_ARG: u8 = 144;

/// Calls `tell` for every function. The body of a class counts as a function, with the plain name of the
/// class.
pub(crate) fn made_functions<'gil>(code: Code<'gil>, tell: &mut dyn FnMut(Code<'gil>, &str)) {
    let mut loaded = Loaded::default();
    for instruction in code.instructions().as_chunks::<2>().0 {
        if let Some([function, name]) = loaded.next(*instruction) {
            tell_of(code, function, name, tell);
        }
    }
}

fn tell_of<'gil>(
    code: Code<'gil>,
    function: usize,
    name: usize,
    tell: &mut dyn FnMut(Code<'gil>, &str),
) -> Option<()> {
    // SAFETY: a constant, which lives as long as its code.
    let made = unsafe { Code::from_object(code.python(), code.constant(function)?)? };
    // SAFETY: as above; anything but a string is refused.
    let name = unsafe { Utf8::from_string(code.python(), code.constant(name)?.as_ptr())? };
    tell(made, name.text());
    Some(())
}

/// Which constants the last two instructions loaded.
#[derive(Default)]
struct Loaded {
    constants: [Option<usize>; 2],
    argument: usize,
}

impl Loaded {
    /// Processes an instruction. If it makes a function, returns the indices of the function's code and name.
    fn next(&mut self, [operation, argument]: [u8; 2]) -> Option<[usize; 2]> {
        let argument = self.argument << 8 | usize::from(argument);
        self.argument = 0;
        match operation {
            EXTENDED_ARG => self.argument = argument & 0xff_ffff,
            LOAD_CONST => self.constants = [self.constants[1], Some(argument)],
            _ => {
                let [function, name] = core::mem::take(&mut self.constants);
                if operation == MAKE_FUNCTION {
                    return Some([function?, name?]);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(instructions: &[[u8; 2]]) -> Vec<[usize; 2]> {
        let mut loaded = Loaded::default();
        instructions.iter().filter_map(|instruction| loaded.next(*instruction)).collect()
    }

    #[test]
    fn functions_are_made_of_the_last_two_constants() {
        const LOAD_NAME: u8 = 101;
        assert_eq!(
            made(&[
                [LOAD_CONST, 7],
                [LOAD_CONST, 1],
                [LOAD_CONST, 2],
                [MAKE_FUNCTION, 0],
                [LOAD_CONST, 3],
                [EXTENDED_ARG, 1],
                [LOAD_CONST, 4],
                [MAKE_FUNCTION, 8],
            ]),
            [[1, 2], [3, 0x104]]
        );
        assert_eq!(
            made(&[[LOAD_CONST, 1], [LOAD_NAME, 0], [LOAD_CONST, 2], [MAKE_FUNCTION, 0]]),
            [[0; 2]; 0]
        );
        assert_eq!(made(&[[LOAD_CONST, 1], [MAKE_FUNCTION, 0], [MAKE_FUNCTION, 0]]), [[0; 2]; 0]);
    }
}
