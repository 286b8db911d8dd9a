//! The engine `signal`: a signal handler on the calling thread spins in user mode.
//!
//! The loader chooses signals that the program does not use, one for each delay, and its BPF program sends
//! one to the thread that calls a function. The handler only reads the time, without entering the kernel. It
//! changes neither `errno` nor, as the kernel saves them, vector registers.
//!
//! A signal may be in flight when a session ends, and without a handler a real-time one would end the
//! process. So the handlers are removed only after the loader has seen that none is in flight. After the
//! loader's death, and in forked children, they stay, and return at once.

use core::{
    ffi::c_void,
    hint,
    sync::atomic::{AtomicBool, Ordering},
};

use speed_bump_abi::{
    Gaps,
    control_block::{HARMLESS_SIGNAL, Handling, HelperCommand, SPIN_WITHOUT_LOADER_NS},
};

use crate::{
    block::Block,
    clock,
    sys::{self, SignalAction},
};

/// Whether spins end at once: the session is over, as far as this process knows.
static IS_OVER: AtomicBool = AtomicBool::new(true);

/// Installs handlers for the session's signals, if the program does not use them.
pub(crate) fn install(block: Block) {
    let wanted = || block.head().signals.iter().filter(|slot| slot.number.load(Ordering::Acquire) != 0);
    if wanted().next().is_none() {
        return;
    }
    if !clock::prepare() {
        return;
    }
    IS_OVER.store(false, Ordering::Release);
    for slot in wanted() {
        let handling =
            if take(slot.number.load(Ordering::Acquire)) { Handling::Ours } else { Handling::Theirs };
        slot.handling.store(handling as u32, Ordering::Release);
    }
    block.head().handler.store(on_signal as *const () as u64, Ordering::Release);
}

/// Ends spins in progress, and later ones.
pub(crate) fn end() {
    IS_OVER.store(true, Ordering::Release);
}

/// Removes the handlers, if no signal is in flight, or none would do harm.
pub(crate) fn give_back(block: Block) {
    end();
    let are_over = block.head().signals_over.load(Ordering::Acquire) != 0;
    for slot in &block.head().signals {
        let signal = slot.number.load(Ordering::Acquire);
        let may_go = signal != 0 && (are_over || signal == HARMLESS_SIGNAL);
        if may_go && sys::signal_action(signal).is_ok_and(|action| action.is(on_signal)) {
            let _ = sys::set_signal_action(signal, &SignalAction::default());
        }
    }
}

/// Installs our handler. Returns whether the signal is ours from here on.
fn take(signal: u32) -> bool {
    let is_free = |action: &SignalAction| action.is_default() || action.is(on_signal);
    if !sys::signal_action(signal).is_ok_and(|action| is_free(&action)) {
        return false;
    }
    let Ok(before) = sys::set_signal_action(signal, &SignalAction::for_handler(on_signal)) else {
        return false;
    };
    // The program may have taken the signal at this very moment.
    is_free(&before) || sys::set_signal_action(signal, &before).is_err()
}

extern "C" fn on_signal(signal: i32, information: *mut c_void, _: *mut c_void) {
    // SAFETY: from the kernel, as the handler was installed with `SA_SIGINFO`.
    if !unsafe { sys::is_from_kernel(information) } {
        return;
    }
    let Some(head) = Block::current().map(Block::head) else { return };
    let slot = head.signals.iter().find(|slot| slot.number.load(Ordering::Relaxed) == signal.cast_unsigned());
    let Some(slot) = slot else { return };
    let spin_ns = slot.spin_ns.load(Ordering::Relaxed);
    let began = clock::now_ns();
    let (mut heartbeat, mut heard) = (head.heartbeat.load(Ordering::Relaxed), began);
    let (mut gaps, mut last_reading, mut spent_ns) = (Gaps::NEW, began, 0_u64);
    loop {
        let now = clock::now_ns();
        let step_ns = now.saturating_sub(last_reading);
        last_reading = now;
        // A slower function would still have all its work to do after it was preempted.
        if !gaps.is_gap(step_ns, Gaps::ALLOWANCE_NS) {
            spent_ns += step_ns;
        }
        // Between sessions there are zeros: no command to leave, but no signal either.
        let is_over = IS_OVER.load(Ordering::Relaxed)
            || head.command.load(Ordering::Relaxed) == HelperCommand::Leave as u32
            || slot.number.load(Ordering::Relaxed) != signal.cast_unsigned();
        if is_over || spent_ns >= spin_ns {
            return;
        }
        let beat = head.heartbeat.load(Ordering::Relaxed);
        if beat != heartbeat {
            (heartbeat, heard) = (beat, now);
        } else if now.saturating_sub(heard) >= SPIN_WITHOUT_LOADER_NS {
            return;
        }
        hint::spin_loop();
    }
}
