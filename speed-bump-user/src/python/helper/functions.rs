//! The functions that the helper found, taken up as their records become ready.

use std::collections::BTreeSet;

use super::block::{Block, BlockError};

/// A function that the helper found and the selector selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// Its number in the process.
    pub number: u32,
    /// The target that selects it, as the selector numbers them. May be any number.
    pub target: u32,
    /// `co_firstlineno`.
    pub line: u32,
    /// Its qualified name.
    pub name: String,
    /// `co_filename`.
    pub file: String,
}

/// Which records were taken up.
#[derive(Debug, Default)]
pub struct NewFunctions {
    /// Those below this number were looked at.
    looked_at: u32,
    /// Those that were not ready then. Whoever handed one out may have been killed over it.
    unready: BTreeSet<u32>,
}

impl NewFunctions {
    /// The functions that became known since the last call.
    ///
    /// # Errors
    /// The block is gone.
    pub fn take(&mut self, block: &Block) -> Result<Vec<FoundFunction>, BlockError> {
        let handed_out = block.handed_out()?;
        self.unready.extend(self.looked_at..handed_out);
        self.looked_at = self.looked_at.max(handed_out);
        let mut found = Vec::new();
        for number in self.unready.clone() {
            let Some([_, target, line, name_offset, name_length, file_offset, file_length, _]) =
                block.record(number)?
            else {
                continue;
            };
            self.unready.remove(&number);
            let name = block.name(name_offset, name_length)?;
            let file = block.name(file_offset, file_length)?;
            found.push(FoundFunction { number, target, line, name, file });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs::File, mem::offset_of, os::unix::fs::FileExt as _};

    use speed_bump_abi::control_block::{Command, ControlBlock, StubForm};

    use super::{
        super::{block::Contents, layout::Room},
        *,
    };

    /// A block, and the file as the helper has it.
    fn block(functions: u32) -> (Block, File) {
        let contents = Contents {
            room: Room { functions },
            selector: b"",
            stub_form: StubForm::Nop,
            command: Command::Run,
            signals: &[],
        };
        let file = tempfile::tempfile().unwrap();
        contents.write(&file).unwrap();
        (Block::new(file.try_clone().unwrap(), &contents).unwrap(), file)
    }

    fn write_record(block: &Block, file: &File, number: u32, words: [u32; 8]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        file.write_all_at(&bytes, block.layout().functions + u64::from(number) * 32).unwrap();
    }

    fn hand_out(file: &File, count: u32) {
        file.write_all_at(&count.to_ne_bytes(), offset_of!(ControlBlock, functions) as u64).unwrap();
    }

    #[test]
    fn each_function_is_told_of_once_and_late_ones_later() {
        let (block, file) = block(4);
        let mut functions = NewFunctions::default();
        assert_eq!(functions.take(&block).unwrap(), []);
        file.write_all_at(b"K.m\0/a.py\0", block.layout().names).unwrap();
        write_record(&block, &file, 1, [1, 3, 7, 0, 3, 4, 5, 1]);
        hand_out(&file, 2);
        let found = functions.take(&block).unwrap();
        let expected =
            FoundFunction { number: 1, target: 3, line: 7, name: "K.m".into(), file: "/a.py".into() };
        assert_eq!(found, [expected]);
        assert_eq!(functions.take(&block).unwrap(), [], "0 is not ready");
        write_record(&block, &file, 0, [1, 0, 1, 0, 1, 4, 5, 1]);
        assert_eq!(functions.take(&block).unwrap()[0].name, "K");
        assert_eq!(functions.take(&block).unwrap(), []);
    }

    #[test]
    fn nonsense_stays_inside_the_block() {
        let (block, file) = block(4);
        let mut functions = NewFunctions::default();
        hand_out(&file, u32::MAX);
        for number in 0..4 {
            write_record(&block, &file, number, [1, u32::MAX, 0, u32::MAX, u32::MAX, 2048, 2, 0]);
        }
        let found = functions.take(&block).unwrap();
        assert_eq!(found.len(), 4, "as many as there is room for");
        assert!(
            found.iter().all(|function| function.name.is_empty() && function.file.is_empty()),
            "{found:?}"
        );
        file.write_all_at(b"\xff\xfe", block.layout().names).unwrap();
    }

    #[test]
    fn names_that_are_no_utf_8_are_replaced() {
        let (block, file) = block(4);
        file.write_all_at(b"f\xffg", block.layout().names).unwrap();
        write_record(&block, &file, 0, [1, 0, 0, 0, 3, 0, 1, 0]);
        hand_out(&file, 1);
        assert_eq!(NewFunctions::default().take(&block).unwrap()[0].name, "f\u{fffd}g");
    }
}
