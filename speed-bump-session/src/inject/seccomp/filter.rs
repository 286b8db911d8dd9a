//! Finds all answers that a seccomp filter may give to a call that we know only in part. A filter is a
//! program of classic BPF over `struct seccomp_data`.
//!
//! A value is known or unknown. At a jump that depends on an unknown value, we follow both ways. Jumps only
//! go forward, so this ends.

use std::{collections::HashSet, fmt};

use crate::sys::ptrace::FilterInstruction;

/// A system call, with the arguments that we know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    number: u32,
    arguments: [Option<u64>; 6],
}

impl Call {
    /// A call without a known argument.
    pub(crate) fn any(number: libc::c_long) -> Self {
        Self { number: u32::try_from(number).unwrap_or(u32::MAX), arguments: [None; 6] }
    }

    /// This call, with this value for an argument.
    pub(crate) fn with(mut self, position: usize, value: u64) -> Self {
        if let Some(argument) = self.arguments.get_mut(position) {
            *argument = Some(value);
        }
        self
    }

    /// The word at an offset of `struct seccomp_data` (include/uapi/linux/seccomp.h): number, architecture,
    /// instruction pointer, six arguments.
    fn word(&self, offset: u32, architecture: u32) -> Option<u32> {
        match offset {
            0 => Some(self.number),
            4 => Some(architecture),
            16.. => {
                let position = usize::try_from((offset - 16) / 8).ok()?;
                let value = self.arguments.get(position).copied().flatten()?;
                Some(if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 })
            }
            _ => None,
        }
    }
}

/// A filter's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Allow,
    Log,
    Errno(u16),
    Trace,
    Notify,
    Trap,
    KillThread,
    KillProcess,
    Unknown(u32),
}

impl Action {
    /// The values are from include/uapi/linux/seccomp.h. If the kernel does not know a value, it takes the
    /// worst action.
    fn from_value(value: u32) -> Self {
        match value & 0xffff_0000 {
            0x7fff_0000 => Self::Allow,
            0x7ffc_0000 => Self::Log,
            0x7ff0_0000 => Self::Trace,
            0x7fc0_0000 => Self::Notify,
            0x0005_0000 => Self::Errno((value & 0xffff) as u16),
            0x0003_0000 => Self::Trap,
            0x0000_0000 => Self::KillThread,
            0x8000_0000 => Self::KillProcess,
            _ => Self::Unknown(value),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("permission"),
            Self::Log => f.write_str("permission and a log entry"),
            Self::Errno(errno) => write!(f, "error {errno}"),
            Self::Trace => f.write_str("a question to a tracer"),
            Self::Notify => f.write_str("a question to a supervisor"),
            Self::Trap => f.write_str("SIGSYS"),
            Self::KillThread => f.write_str("the end of the thread"),
            Self::KillProcess => f.write_str("the end of the process"),
            Self::Unknown(value) => write!(f, "action {value:#x}"),
        }
    }
}

/// All possible answers; `Unclear` if we cannot determine them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Only(Vec<Action>),
    Unclear,
}

/// A state of the program: the next instruction, and the known values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    next: usize,
    accumulator: Option<u32>,
    index: Option<u32>,
    memory: [Option<u32>; 16],
}

/// The most states of one filter before we give up. We store the states, and each takes 150 bytes.
const STATES: usize = 200_000;

/// The most steps before we give up, for all filters of a thread and all calls. These steps take about a
/// second, while the thread is stopped. The author of a filter can put anything in it, and there may be
/// hundreds of filters.
pub(crate) const STEPS: usize = 1_000_000;

/// Finds the answers of a filter. Subtracts the steps that it needed from `steps`.
pub(crate) fn judge(
    program: &[FilterInstruction],
    call: &Call,
    architecture: u32,
    steps: &mut usize,
) -> Verdict {
    let start = State { next: 0, accumulator: Some(0), index: Some(0), memory: [Some(0); 16] };
    let mut pending = vec![start];
    let mut seen = HashSet::new();
    let mut actions = HashSet::new();
    while let Some(state) = pending.pop() {
        if !seen.insert(state) {
            continue;
        }
        let Some(left) = steps.checked_sub(1) else { return Verdict::Unclear };
        *steps = left;
        let step =
            program.get(state.next).and_then(|instruction| step(state, instruction, call, architecture));
        match step {
            None => return Verdict::Unclear,
            Some(_) if seen.len() > STATES => return Verdict::Unclear,
            Some(Step::Answer(action)) => {
                actions.insert(action);
            }
            Some(Step::On(state)) => pending.push(state),
            Some(Step::Either(one, other)) => pending.extend([one, other]),
        }
    }
    Verdict::Only(actions.into_iter().collect())
}

enum Step {
    Answer(Action),
    On(State),
    Either(State, State),
}

/// Executes one instruction (include/uapi/linux/bpf_common.h, linux/filter.h). Returns `None` for an
/// instruction that filters cannot have.
fn step(mut state: State, instruction: &FilterInstruction, call: &Call, architecture: u32) -> Option<Step> {
    let FilterInstruction { code, jump_true, jump_false, constant } = *instruction;
    let slot = usize::try_from(constant).ok().filter(|slot| *slot < 16);
    state.next += 1;
    let operand = if code & 8 == 0 { Some(constant) } else { state.index };
    match (code & 7, code & 0xf8) {
        // BPF_LD: loads a word of the data, a constant, memory, or the length of the data.
        (0, 0x20) => state.accumulator = call.word(constant, architecture),
        (0, 0x00) => state.accumulator = Some(constant),
        (0, 0x60) => state.accumulator = state.memory[slot?],
        (0, 0x80) => state.accumulator = Some(64),
        (1, 0x00) => state.index = Some(constant),
        (1, 0x60) => state.index = state.memory[slot?],
        (1, 0x80) => state.index = Some(64),
        (2, 0) => state.memory[slot?] = state.accumulator,
        (3, 0) => state.memory[slot?] = state.index,
        (4, operation) => state.accumulator = arithmetic(operation & 0xf0, state.accumulator, operand)?,
        (5, 0x00) => state.next = state.next.checked_add(usize::try_from(constant).ok()?)?,
        (5, operation) => {
            let compare: fn(u32, u32) -> bool = match operation & 0xf0 {
                0x10 => |a, b| a == b,
                0x20 => |a, b| a > b,
                0x30 => |a, b| a >= b,
                0x40 => |a, b| a & b != 0,
                _ => return None,
            };
            let to = |jump: u8| State { next: state.next + usize::from(jump), ..state };
            return Some(match state.accumulator.zip(operand) {
                Some((a, b)) => Step::On(to(if compare(a, b) { jump_true } else { jump_false })),
                None => Step::Either(to(jump_true), to(jump_false)),
            });
        }
        (6, 0x00) => return Some(Step::Answer(Action::from_value(constant))),
        (6, 0x10) => return Some(Step::Answer(Action::from_value(state.accumulator?))),
        (7, 0x00) => state.index = state.accumulator,
        (7, 0x80) => state.accumulator = state.index,
        _ => return None,
    }
    Some(Step::On(state))
}

fn arithmetic(operation: u16, accumulator: Option<u32>, operand: Option<u32>) -> Option<Option<u32>> {
    if operation == 0x80 {
        return Some(accumulator.map(u32::wrapping_neg));
    }
    let compute: fn(u32, u32) -> Option<u32> = match operation {
        0x00 => |a, b| Some(a.wrapping_add(b)),
        0x10 => |a, b| Some(a.wrapping_sub(b)),
        0x20 => |a, b| Some(a.wrapping_mul(b)),
        0x30 => u32::checked_div,
        0x40 => |a, b| Some(a | b),
        0x50 => |a, b| Some(a & b),
        0x60 => u32::checked_shl,
        0x70 => u32::checked_shr,
        0xa0 => |a, b| Some(a ^ b),
        _ => return None,
    };
    Some(accumulator.zip(operand).and_then(|(a, b)| compute(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURE: u32 = 0xc000_003e;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;

    fn instruction(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> FilterInstruction {
        FilterInstruction { code, jump_true, jump_false, constant }
    }

    fn answers(program: &[FilterInstruction], call: Call) -> Verdict {
        judge(program, &call, ARCHITECTURE, &mut { STEPS })
    }

    #[test]
    fn a_list_of_allowed_calls_is_followed() {
        let program = [
            instruction(0x20, 0, 0, 4),
            instruction(0x15, 1, 0, ARCHITECTURE),
            instruction(0x06, 0, 0, KILL),
            instruction(0x20, 0, 0, 0),
            instruction(0x15, 0, 1, 3),
            instruction(0x06, 0, 0, ALLOW),
            instruction(0x06, 0, 0, 0x0005_0001),
        ];
        assert_eq!(answers(&program, Call::any(3)), Verdict::Only(vec![Action::Allow]));
        assert_eq!(answers(&program, Call::any(319)), Verdict::Only(vec![Action::Errno(1)]));
        assert_eq!(
            judge(&program, &Call::any(3), 40, &mut { STEPS }),
            Verdict::Only(vec![Action::KillProcess])
        );
    }

    #[test]
    fn an_unknown_argument_is_followed_both_ways() {
        let program = [
            instruction(0x20, 0, 0, 16 + 8 * 2),
            instruction(0x54, 0, 0, 4),
            instruction(0x15, 0, 1, 0),
            instruction(0x06, 0, 0, ALLOW),
            instruction(0x06, 0, 0, KILL),
        ];
        let Verdict::Only(actions) = answers(&program, Call::any(9)) else { unreachable!() };
        assert_eq!(actions.len(), 2);
        assert_eq!(answers(&program, Call::any(9).with(2, 3)), Verdict::Only(vec![Action::Allow]));
        assert_eq!(answers(&program, Call::any(9).with(2, 5)), Verdict::Only(vec![Action::KillProcess]));
    }

    #[test]
    fn filters_made_to_keep_us_busy_do_not() {
        // Each unknown bit doubles the number of possible memory contents.
        let mut program = Vec::new();
        for bit in 0..13 {
            program.push(instruction(0x20, 0, 0, 16));
            program.push(instruction(0x45, 0, 2, 1 << bit));
            program.push(instruction(0x00, 0, 0, 1));
            program.push(instruction(0x02, 0, 0, bit));
        }
        program.push(instruction(0x06, 0, 0, ALLOW));
        let mut steps = 100_000;
        let allowed = Verdict::Only(vec![Action::Allow]);
        assert_eq!(judge(&program, &Call::any(3), ARCHITECTURE, &mut steps), allowed);
        assert!(steps < 60_000, "{steps}");
        // A thread may have hundreds of filters like this one, and the kernel applies each to every call.
        let judged = (0..10_000)
            .take_while(|_| judge(&program, &Call::any(3), ARCHITECTURE, &mut steps) != Verdict::Unclear);
        assert_eq!(judged.count(), 1);
        assert_eq!(steps, 0);
    }

    #[test]
    fn programs_that_lead_nowhere_are_not_relied_on() {
        assert_eq!(answers(&[], Call::any(3)), Verdict::Unclear);
        assert_eq!(answers(&[instruction(0x05, 0, 0, 7)], Call::any(3)), Verdict::Unclear);
        assert_eq!(answers(&[instruction(0xff, 0, 0, 7)], Call::any(3)), Verdict::Unclear);
        assert_eq!(answers(&[instruction(0x02, 0, 0, 99)], Call::any(3)), Verdict::Unclear);
    }
}
