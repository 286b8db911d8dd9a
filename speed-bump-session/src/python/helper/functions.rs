//! Reads the functions that the helper found, as their records become ready.

use std::collections::BTreeSet;

use super::block::{Block, BlockError};
use crate::bounds::{NAME_BYTES, NAMES_OF_PROCESS};

/// A function that the helper found and the selector selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundFunction {
    /// The function's number in the process.
    pub number: u32,
    /// The number of the target that selects the function. The process may write any number.
    pub target: u32,
    /// `co_firstlineno`.
    pub line: u32,
    /// The function's qualified name.
    pub name: String,
    /// `co_filename`.
    pub file: String,
}

/// Keeps track of the records that we have read.
#[derive(Debug, Default)]
pub struct NewFunctions {
    /// We have checked all records below this number.
    looked_at: u32,
    /// Records that we checked and that were not ready. The thread that allocated a record may have been
    /// killed before it completed the record.
    unready: BTreeSet<u32>,
    /// The total length of the names that we have kept.
    names: usize,
    left_out: LeftOut,
}

/// What we left out of a helper's functions and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The ends of names longer than [`NAME_BYTES`].
    pub ends_of_names: bool,
    /// Functions whose names no longer fitted into [`NAMES_OF_PROCESS`], the room for all names of a process.
    pub functions: bool,
    /// Functions without a name: the process wrote no name, or moved the name elsewhere.
    pub nameless: bool,
}

impl NewFunctions {
    /// The functions whose records became ready since the last call.
    ///
    /// # Errors
    /// The block is gone.
    pub fn take(&mut self, block: &Block) -> Result<Vec<FoundFunction>, BlockError> {
        let handed_out = block.handed_out()?;
        self.unready.extend(self.looked_at..handed_out);
        self.looked_at = self.looked_at.max(handed_out);
        let (Some(first), Some(last)) = (self.unready.first(), self.unready.last()) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for number in block.ready(*first..last.saturating_add(1))? {
            if !self.unready.remove(&number) {
                continue;
            }
            let [_, target, line, name_offset, name_length, file_offset, file_length, _] =
                block.record(number)?;
            let lengths =
                [name_length, file_length].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
            self.left_out.ends_of_names |= lengths.iter().any(|length| *length > NAME_BYTES);
            let bytes: usize = lengths.iter().map(|length| *length.min(&NAME_BYTES)).sum();
            if self.names + bytes > NAMES_OF_PROCESS {
                self.left_out.functions = true;
                continue;
            }
            self.names += bytes;
            let name = block.name(name_offset, name_length)?;
            let file = block.name(file_offset, file_length)?;
            if name.is_empty() {
                self.left_out.nameless = true;
                continue;
            }
            found.push(FoundFunction { number, target, line, name, file });
        }
        Ok(found)
    }

    /// What we have left out so far.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{fs::File, mem::offset_of, os::unix::fs::FileExt as _};

    use speed_bump_abi::control_block::{ControlBlock, HelperCommand, StubForm};

    use super::{
        super::{
            block::{Contents, tests::memfd},
            layout::Room,
        },
        *,
    };

    /// A block, and its file as the helper has it.
    fn block(functions: u32) -> (Block, File) {
        let contents = Contents {
            room: Room { functions },
            selector: b"",
            stub_form: StubForm::Nop,
            command: HelperCommand::Run,
            signals: &[],
            in_place: None,
        };
        let file = memfd();
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
            write_record(&block, &file, number, [1, u32::MAX, 0, 0, 1, u32::MAX, u32::MAX, 0]);
        }
        let found = functions.take(&block).unwrap();
        assert_eq!(found.len(), 4, "as many as there is room for");
        assert!(found.iter().all(|function| function.file.is_empty()), "{found:?}");
        assert!(!functions.left_out().nameless);
        file.write_all_at(b"\xff\xfe", block.layout().names).unwrap();
    }

    #[test]
    fn functions_without_a_name_are_left_out() {
        let (block, file) = block(4);
        file.write_all_at(b"f\0", block.layout().names).unwrap();
        let outside = u32::try_from(block.layout().names_capacity).unwrap();
        for (number, [offset, length]) in (0..).zip([[0, 0], [outside, 1], [u32::MAX, u32::MAX], [0, 1]]) {
            write_record(&block, &file, number, [1, 0, 0, offset, length, 0, 1, 0]);
        }
        hand_out(&file, 4);
        let mut functions = NewFunctions::default();
        let found = functions.take(&block).unwrap();
        assert_eq!(found.iter().map(|function| function.number).collect::<Vec<_>>(), [3]);
        assert!(functions.left_out().nameless);
    }

    #[test]
    fn long_names_are_cut_and_all_of_a_process_are_bounded() {
        let (block, file) = block(16_384);
        file.write_all_at(&vec![b'x'; 10_000], block.layout().names).unwrap();
        for number in 0..16_384 {
            write_record(&block, &file, number, [1, 0, 0, 0, 8 << 20, 0, 4096, 0]);
        }
        let mut functions = NewFunctions::default();
        hand_out(&file, 1);
        let cut = functions.take(&block).unwrap().remove(0);
        assert_eq!((cut.name.len(), cut.file.len()), (4096, 4096));
        assert_eq!(functions.left_out(), LeftOut { ends_of_names: true, ..LeftOut::default() });
        hand_out(&file, 16_384);
        assert_eq!(functions.take(&block).unwrap().len(), NAMES_OF_PROCESS / 8192 - 1);
        assert_eq!(functions.left_out(), LeftOut { ends_of_names: true, functions: true, nameless: false });
        assert_eq!(functions.take(&block).unwrap(), []);
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
