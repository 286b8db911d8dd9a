//! The signals of a session, in the control block.

use std::{
    io,
    mem::{offset_of, size_of},
};

use speed_bump_abi::control_block::{ControlBlock, Handling, SIGNALS, SignalSlot};

use super::{Block, BlockError};
use crate::units::Nanos;

/// A helper's report on the session's signals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalAnswer {
    /// The address of the helper's signal handler.
    pub handler: u64,
    /// Signals that the program handles itself, so that the helper does not.
    pub taken: Vec<u32>,
}

/// Writes the session's signals, and the time that the helper spins on each of them.
pub(super) fn write(
    signals: &[(u32, Nanos)],
    put_u32: impl Fn(usize, u32) -> io::Result<()>,
    put_u64: impl Fn(usize, u64) -> io::Result<()>,
) -> io::Result<()> {
    for (number, (signal, spin)) in signals.iter().take(SIGNALS).enumerate() {
        put_u64(slot(number) + offset_of!(SignalSlot, spin_ns), spin.0)?;
        put_u32(slot(number) + offset_of!(SignalSlot, number), *signal)?;
    }
    Ok(())
}

/// The offset of the slot for a signal.
fn slot(number: usize) -> usize {
    offset_of!(ControlBlock, signals) + number * size_of::<SignalSlot>()
}

impl Block {
    /// The helper's report on the session's signals; `None` if the helper handles no signals.
    ///
    /// # Errors
    /// The block is gone.
    pub fn signal_answer(&self) -> Result<Option<SignalAnswer>, BlockError> {
        let head = self.head()?;
        let handler = head.u64(offset_of!(ControlBlock, handler));
        let mut taken = Vec::new();
        for place in (0..SIGNALS).map(slot) {
            let number = head.u32(place + offset_of!(SignalSlot, number));
            let handling = head.u32(place + offset_of!(SignalSlot, handling));
            if number != 0 && handling != Handling::Ours as u32 {
                taken.push(number);
            }
        }
        Ok((handler != 0).then_some(SignalAnswer { handler, taken }))
    }

    /// Sets the time that the helper spins on each signal from now on. `signals` must be the same as in
    /// [`Contents::signals`](super::Contents::signals), in the same order.
    ///
    /// # Errors
    /// The block is gone.
    pub fn set_signals(&self, signals: &[(u32, Nanos)]) -> Result<(), BlockError> {
        for (number, (_, spin)) in signals.iter().take(SIGNALS).enumerate() {
            self.put_u64(slot(number) + offset_of!(SignalSlot, spin_ns), spin.0)?;
        }
        Ok(())
    }

    /// Tells the helper that no signal of the session is in flight, and none will come. When the helper
    /// leaves, it restores the program's own handling of these signals.
    ///
    /// # Errors
    /// The block is gone.
    pub fn signals_are_over(&self) -> Result<(), BlockError> {
        self.put_u32(offset_of!(ControlBlock, signals_over), 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use speed_bump_abi::control_block::{HelperCommand, StubForm};

    use super::*;
    use crate::python::helper::{Room, block::Contents};

    #[test]
    fn the_helpers_answer_is_read_as_it_is() {
        let signals = [(50, Nanos(7)), (51, Nanos(8))];
        let contents = Contents {
            room: Room { functions: 1 },
            selector: b"",
            stub_form: StubForm::Nop,
            command: HelperCommand::HandleSignals,
            signals: &signals,
            in_place: None,
        };
        let file = crate::python::helper::block::tests::memfd();
        contents.write(&file).unwrap();
        let block = Block::new(file, &contents).unwrap();
        assert_eq!(block.signal_answer().unwrap(), None);
        assert_eq!(block.head().unwrap().u64(slot(1) + offset_of!(SignalSlot, spin_ns)), 8);
        block.put_u64(offset_of!(ControlBlock, handler), 0x1234).unwrap();
        block.put_u32(slot(0) + offset_of!(SignalSlot, handling), Handling::Ours as u32).unwrap();
        block.put_u32(slot(1) + offset_of!(SignalSlot, handling), Handling::Theirs as u32).unwrap();
        let answer = SignalAnswer { handler: 0x1234, taken: vec![51] };
        assert_eq!(block.signal_answer().unwrap(), Some(answer.clone()));
        block.set_signals(&[(50, Nanos(9)), (51, Nanos(10))]).unwrap();
        let spins =
            [0, 1, 2].map(|place| block.head().unwrap().u64(slot(place) + offset_of!(SignalSlot, spin_ns)));
        assert_eq!(spins, [9, 10, 0]);
        assert_eq!(block.signal_answer().unwrap(), Some(answer));
        block.signals_are_over().unwrap();
        assert_eq!(block.get_u32(offset_of!(ControlBlock, signals_over)).unwrap(), 1);
    }
}
