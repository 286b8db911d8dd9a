#![allow(clippy::unwrap_used)]
//! Checks what kernels other than the running one would do with the object.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use aya_obj::{Object, ProgramSection, generated::bpf_insn};

use speed_bump_abi::maps;

use super::{LOGGING_OBJECT, OBJECT};

/// `MAX_BPF_STACK` (include/linux/filter.h): the most stack for a program together with all functions that it
/// calls. Since 6.13 some programs may use more.
const STACK_BYTES: i32 = 512;

/// Opcodes (Documentation/bpf/standardization/instruction-set.rst).
const MOVE: u8 = 0xbf;
const ADD_CONSTANT: u8 = 0x07;
const CALL: u8 = 0x85;
const LOAD_WIDE: u8 = 0x18;
/// `BPF_PSEUDO_CALL` and `BPF_PSEUDO_FUNC` (include/uapi/linux/bpf.h): a call of a function in the object,
/// and the address of a function.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_FUNCTION: u8 = 4;
const FRAME_POINTER: u8 = 10;

/// `BPF_FUNC_tail_call` (include/uapi/linux/bpf.h).
const TAIL_CALL: i32 = 12;

/// The objects. Each program is linked with the functions that it uses.
fn linked() -> [Object; 2] {
    [OBJECT, LOGGING_OBJECT].map(|bytes| {
        let mut object = Object::parse(bytes).unwrap();
        let text_sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        object.relocate_calls(&text_sections).unwrap();
        object
    })
}

/// For each function of a linked program: how much stack it uses, and which functions it calls. The key is
/// the function's position.
fn functions(program: &[bpf_insn]) -> BTreeMap<usize, (i32, BTreeSet<usize>)> {
    let target = |at: usize, instruction: &bpf_insn| {
        let own = (instruction.code == CALL && instruction.src_reg() == PSEUDO_CALL)
            || (instruction.code == LOAD_WIDE && instruction.src_reg() == PSEUDO_FUNCTION);
        own.then(|| (at + 1).checked_add_signed(instruction.imm as isize).unwrap())
    };
    let called = program.iter().enumerate().filter_map(|(at, instruction)| target(at, instruction));
    let starts: BTreeSet<usize> = called.chain([0]).collect();
    let mut functions: BTreeMap<usize, (i32, BTreeSet<usize>)> = BTreeMap::new();
    for (at, instruction) in program.iter().enumerate() {
        let start = *starts.range(..=at).next_back().unwrap();
        let (stack, calls) = functions.entry(start).or_default();
        calls.extend(target(at, instruction));
        let address = match instruction.code & 7 {
            // Loads from the stack, and stores of constants and registers.
            1 if instruction.src_reg() == FRAME_POINTER => i32::from(instruction.off),
            2 | 3 if instruction.dst_reg() == FRAME_POINTER => i32::from(instruction.off),
            7 if instruction.code == MOVE && instruction.src_reg() == FRAME_POINTER => {
                let next = program.get(at + 1).unwrap();
                let adds = next.code == ADD_CONSTANT && next.dst_reg() == instruction.dst_reg();
                if adds { next.imm } else { 0 }
            }
            _ => 0,
        };
        *stack = (*stack).max(-address);
    }
    functions
}

/// How much stack a function needs together with the deepest chain of functions that it calls. We round each
/// frame up as in kernel/bpf/verifier.c (`check_max_stack_depth`).
fn depth(functions: &BTreeMap<usize, (i32, BTreeSet<usize>)>, at: usize) -> i32 {
    let (own, calls) = &functions[&at];
    let below = calls.iter().map(|called| depth(functions, *called)).max().unwrap_or(0);
    ((*own).max(1) as u32).next_multiple_of(32).cast_signed() + below
}

#[test]
fn without_logs_nothing_of_them_is_there() {
    let [silent, logging] = [OBJECT, LOGGING_OBJECT].map(|bytes| Object::parse(bytes).unwrap());
    for name in [maps::LOGS, maps::LOG_LIMITS] {
        assert!(!silent.maps.contains_key(name), "{name}");
        assert!(logging.maps.contains_key(name), "{name}");
    }
    let names = |object: &Object| object.programs.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&silent), names(&logging));
}

#[test]
fn no_program_needs_more_stack_than_older_kernels_give() {
    linked().iter().for_each(needs_no_more_stack);
}

fn needs_no_more_stack(object: &Object) {
    let mut calls = 0;
    for (name, program) in &object.programs {
        let functions = functions(&object.functions[&program.function_key()].instructions);
        calls += functions.len() - 1;
        let depth = depth(&functions, 0);
        assert!(depth <= STACK_BYTES, "{name}: {depth} bytes");
        assert!(depth >= 32, "{name}: {depth} bytes");
    }
    // If these numbers are lower, the test has misread the program.
    assert!(object.programs.len() >= 4 && calls >= 8, "{calls} calls");
}

#[test]
fn programs_that_can_be_preempted_are_given_no_stack_to_share() {
    linked().iter().for_each(is_given_no_stack_to_share);
}

fn is_given_no_stack_to_share(object: &Object) {
    let uprobes = object
        .programs
        .iter()
        .filter(|(_, program)| matches!(program.section, ProgramSection::UProbe { .. }));
    let without: Vec<_> = uprobes
        .clone()
        .filter(|(_, program)| {
            let instructions = &object.functions[&program.function_key()].instructions;
            let is_tail_call = |it: &bpf_insn| it.code == CALL && it.src_reg() == 0 && it.imm == TAIL_CALL;
            !instructions.iter().any(is_tail_call)
        })
        .map(|(name, _)| name)
        .collect();
    assert!(without.is_empty(), "no tail call in {without:?}");
    assert!(uprobes.count() >= 4);
}

#[test]
fn programs_for_older_kernels_hold_nothing_that_came_later() {
    linked().iter().for_each(holds_nothing_that_came_later);
}

fn holds_nothing_that_came_later(object: &Object) {
    /// `BPF_FUNC_loop`, and all newer helper functions (include/uapi/linux/bpf.h).
    const LATER: std::ops::RangeFrom<i32> = 181..;
    let bounded = [maps::PROGRAM_SITE_BOUNDED, maps::PROGRAM_PYTHON_BOUNDED, maps::PROGRAM_EXEC_BOUNDED];
    for name in bounded.into_iter().chain([maps::PROGRAM_FORK]) {
        let program = &object.programs[name];
        let instructions = &object.functions[&program.function_key()].instructions;
        for it in instructions {
            let is_helper = it.code == CALL && it.src_reg() == 0;
            assert!(!(is_helper && LATER.contains(&it.imm)), "{name}: helper {}", it.imm);
            assert!(!(it.code == LOAD_WIDE && it.src_reg() == PSEUDO_FUNCTION), "{name}: a callback");
        }
    }
}
