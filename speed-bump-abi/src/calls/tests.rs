use super::*;

const PROCESS: u32 = 3;

struct Plain;

impl Turns for Plain {
    fn run<T: Turn>(most: u32, turn: &mut T) {
        for number in 0..most {
            if turn.turn(number) {
                break;
            }
        }
    }
}

fn stack() -> CallStack {
    CallStack { process: PROCESS, ..CallStack::NONE }
}

fn enter(stack: &mut CallStack, function: u32, at: u64, now: u64) -> Entered {
    stack.enter::<Plain>(PROCESS, function, at, now)
}

fn leave(stack: &mut CallStack, function: u32, at: u64, now: u64) -> Option<(u64, u64)> {
    stack.leave::<Plain>(PROCESS, function, at, now).0.map(|left| (left.own_ns, left.cumulative_ns))
}

#[test]
fn own_time_is_without_what_is_called_and_cumulative_with_it() {
    let mut calls = stack();
    enter(&mut calls, 1, 900, 100);
    enter(&mut calls, 2, 800, 130);
    assert_eq!(leave(&mut calls, 2, 800, 150), Some((20, 20)));
    enter(&mut calls, 2, 800, 160);
    assert_eq!(leave(&mut calls, 2, 800, 165), Some((5, 5)));
    assert_eq!(leave(&mut calls, 1, 900, 200), Some((75, 100)));
    assert_eq!(calls.depth, 0);
}

#[test]
fn what_the_tool_takes_is_in_nobodys_time() {
    let mut calls = stack();
    enter(&mut calls, 1, 900, 1_000);
    let inner = enter(&mut calls, 2, 800, 2_000);
    calls.is_not_delayed(2, 800, 2_000, 300);
    calls.at(inner.position.unwrap_or_default()).way_ns = 100;
    // This call is of a function that is not timed.
    calls.is_not_delayed(3, 700, 2_100, 0);
    assert_eq!(leave(&mut calls, 2, 800, 2_500), Some((400, 400)));
    // The trap at its end, which is known once it is over.
    calls.charge(0, 200);
    // 5,000 in all: 400 of the inner call, and 300 + 200 of the tool. The tool's time between the inner
    // call's two clock readings is its `way_ns`, and part of its `entry_ns`.
    assert_eq!(leave(&mut calls, 1, 900, 6_000), Some((4_100, 4_500)));
    // An estimate that is too high does not make a call shorter than what it called.
    enter(&mut calls, 1, 900, 0);
    enter(&mut calls, 2, 800, 10);
    leave(&mut calls, 2, 800, 50);
    calls.charge(0, 1_000);
    assert_eq!(leave(&mut calls, 1, 900, 60), Some((0, 40)));
}

#[test]
fn of_a_recursion_the_outermost_call_alone_is_cumulative() {
    let mut calls = stack();
    for (depth, is_recursive) in [(0, false), (1, true), (2, true)] {
        assert_eq!(enter(&mut calls, 7, 900 - depth, depth * 10).is_recursive, is_recursive);
    }
    let ends = [2, 1, 0].map(|depth| leave(&mut calls, 7, 900 - depth, 100 - depth * 10));
    assert_eq!(ends, [Some((60, 0)), Some((20, 0)), Some((20, 100))]);
}

#[test]
fn calls_that_were_unwound_are_dropped_when_others_begin_or_end_above_them() {
    let mut calls = stack();
    enter(&mut calls, 1, 900, 0);
    enter(&mut calls, 2, 800, 10);
    enter(&mut calls, 3, 700, 20);
    assert_eq!(leave(&mut calls, 3, 700, 30), Some((10, 10)));
    enter(&mut calls, 4, 600, 40);
    // longjmp to 1, which calls 5 from where it called 2.
    let entered = enter(&mut calls, 5, 800, 50);
    assert_eq!((entered.dropped, entered.position), (2, Some(1)));
    assert_eq!(leave(&mut calls, 5, 800, 60), Some((10, 10)));
    // Now 1 ends while 2 is in progress. The time of 3 is still not its own.
    enter(&mut calls, 2, 800, 70);
    let (left, dropped) = calls.leave::<Plain>(PROCESS, 1, 900, 100);
    assert_eq!((left, dropped), (Some(Left { own_ns: 80, cumulative_ns: 100 }), 1));
}

#[test]
fn an_end_that_is_of_no_call_in_progress_is_passed_over() {
    let mut calls = stack();
    assert_eq!(leave(&mut calls, 1, 900, 5), None);
    enter(&mut calls, 1, 900, 0);
    // First an end at another place in the stack, and then an end of another function at the same place.
    assert_eq!((leave(&mut calls, 1, 800, 5), leave(&mut calls, 2, 900, 5)), (None, None));
    assert_eq!(leave(&mut calls, 1, 900, 7), Some((7, 7)));
}

#[test]
fn another_image_begins_with_no_call() {
    let mut calls = stack();
    enter(&mut calls, 1, 900, 0);
    assert_eq!(calls.leave::<Plain>(PROCESS + 1, 1, 900, 9), (None, 0));
    let entered = calls.enter::<Plain>(PROCESS + 1, 1, 800, 10);
    assert_eq!((entered.position, entered.is_recursive, entered.dropped), (Some(0), false, 0));
}

#[test]
fn deeper_calls_than_there_is_room_for_are_left_out_alone() {
    let mut calls = stack();
    for depth in 0..u64::from(CALLS_DEPTH) {
        assert!(enter(&mut calls, 1, 9_000 - depth, depth).position.is_some());
    }
    let entered = enter(&mut calls, 1, 5_000, 100);
    assert_eq!((entered.position, entered.is_recursive), (None, true));
    assert_eq!(leave(&mut calls, 1, 5_000, 101), None);
    for depth in (0..u64::from(CALLS_DEPTH)).rev() {
        assert!(leave(&mut calls, 1, 9_000 - depth, 200).is_some(), "{depth}");
    }
    assert_eq!(calls.depth, 0);
}

#[test]
fn nothing_that_lies_there_leads_beyond_it() {
    let mut calls = CallStack { depth: u32::MAX, ..stack() };
    assert_eq!(calls.leave::<Plain>(PROCESS, 0, 1, 1).0, None);
    assert_eq!(calls.enter::<Plain>(PROCESS, 1, 900, 0).position, None);
    calls.charge(1, 1);
    calls.at(u32::MAX).stack = 1;
}

#[test]
fn the_call_in_progress_tells_its_function() {
    let mut calls = CallStack::NONE;
    assert_eq!(calls.function_at(100), crate::NO_FUNCTION);
    calls.enter::<Plain>(1, 7, 100, 0);
    calls.enter::<Plain>(1, 8, 90, 0);
    let at = |calls: &CallStack| [90, 100, 110].map(|stack| calls.function_at(stack));
    assert_eq!(at(&calls), [8, crate::NO_FUNCTION, crate::NO_FUNCTION]);
    assert_eq!(calls.drop_below::<Plain>(100), 1);
    assert_eq!(at(&calls), [crate::NO_FUNCTION, 7, crate::NO_FUNCTION]);
    calls.depth = u32::MAX;
    assert_eq!(calls.function_at(100), crate::NO_FUNCTION);
}
