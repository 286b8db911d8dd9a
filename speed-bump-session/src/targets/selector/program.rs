//! The program of a pattern, and facts about its matches.

use speed_bump_selector::{
    Fingerprint,
    layout::{PatternRecord, op},
};

use super::{CompileError, count};
use crate::targets::pattern::Piece;

/// The steps of a pattern. Equal programs match the same texts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Program {
    bytes: Vec<u8>,
    needs: Fingerprint,
    least: usize,
    tail: usize,
    tail_chars: usize,
}

impl Program {
    pub(super) fn new(pieces: &[Piece]) -> Result<Self, CompileError> {
        let mut program =
            Self { bytes: Vec::new(), needs: Fingerprint::default(), least: 0, tail: 0, tail_chars: 0 };
        // The text that must precede the next character.
        let mut before = Some(Fingerprint::START);
        for piece in pieces {
            program.push(piece)?;
            let Piece::Literal(literal) = piece else {
                before = None;
                continue;
            };
            for byte in literal.bytes() {
                if let Some(before) = before {
                    program.needs.add(before, byte);
                }
                before = Some(byte);
            }
        }
        if let Some(before) = before {
            program.needs.add(before, Fingerprint::END);
        }
        Ok(program)
    }

    fn push(&mut self, piece: &Piece) -> Result<(), CompileError> {
        match piece {
            Piece::AnyText => {
                self.bytes.push(op::ANY_TEXT);
                self.tail = self.bytes.len();
                self.tail_chars = 0;
            }
            Piece::AnyChar => {
                self.bytes.push(op::ANY_CHAR);
                self.least += 1;
                self.tail_chars += 1;
            }
            Piece::OneOf(class) => {
                self.bytes.push(if class.is_negated() { op::NONE_OF } else { op::ONE_OF });
                self.bytes.extend(count(class.ranges().len())?.to_le_bytes());
                for end in class.ranges().iter().flat_map(|&(first, last)| [first, last]) {
                    self.bytes.extend(u32::from(end).to_le_bytes());
                }
                self.least += 1;
                self.tail_chars += 1;
            }
            Piece::Literal(literal) => {
                self.bytes.push(op::LITERAL);
                self.bytes.extend(count(literal.len())?.to_le_bytes());
                self.bytes.extend(literal.bytes());
                self.least += literal.len();
                self.tail_chars += literal.chars().count();
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The record of the program, if its bytes start at `start`.
    pub(super) fn record(&self, start: u32) -> Result<PatternRecord, CompileError> {
        Ok(PatternRecord {
            needs: self.needs,
            start,
            length: count(self.bytes.len())?,
            least: count(self.least)?,
            tail: count(self.tail)?,
            tail_chars: count(self.tail_chars)?,
        })
    }
}
