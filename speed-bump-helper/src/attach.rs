//! The one function that a loader calls.

use core::{ffi::c_void, ptr};

use speed_bump_abi::control_block::{Clock, Failure, State};

use crate::{
    block::Block,
    clock,
    fault::{self, Fault},
    from_start, host, life, session, signals, sys,
};

/// Begins a session with the control block in this file.
///
/// Under [`RunFromStart`](speed_bump_abi::control_block::HelperCommand::RunFromStart) it waits for Python
/// without a thread. Otherwise it maps it, starts a detached thread with all signals blocked, and returns;
/// all else happens on that thread. Takes neither the GIL nor any lock of the interpreter. The file
/// descriptor is closed in any case.
///
/// Returns 0, or the number of a [`Failure`]; [`Failure::Busy`] while a session is on in this process.
// The loader finds it by name, in the image alone: a test that links the library has no use for it.
#[cfg_attr(feature = "image", unsafe(no_mangle))]
pub extern "C" fn speed_bump_attach(control_fd: i32) -> i32 {
    let failure = attach(control_fd).err().unwrap_or(Failure::None);
    sys::close(control_fd);
    failure as i32
}

fn attach(control_fd: i32) -> Result<(), Failure> {
    if !life::claim().map_err(fault::not_mapped)? {
        return Err(Failure::Busy);
    }
    let begun = Block::map(control_fd).and_then(|block| {
        signals::install(block);
        if block.delays().is_some_and(|delays| delays.clock() == Clock::Monotonic) && !clock::prepare() {
            return Err(Failure::NoClock);
        }
        if block.waits_for_python() && from_start::arm(block)? {
            return Ok(());
        }
        start(block)
    });
    if begun.is_err() {
        life::release();
    }
    begun
}

/// Starts the helper's thread.
///
/// # Errors
/// It could not be, and the block is left.
pub(crate) fn start(block: Block) -> Result<(), Failure> {
    let mask = sys::SignalMask::block_all_but(host::reserved_signals());
    let started = mask.map_err(|_| Failure::NoThread).and_then(|_mask| host::start_thread(main));
    if let Err(failure) = started {
        block.describe(&Fault::new(failure, &[]));
        block.leave(State::Failed, || {});
    }
    started
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    sys::name_thread(c"speed-bump");
    match Block::current() {
        Some(block) => {
            let state = session::serve(block, from_start::take());
            signals::give_back(block);
            block.leave(state, life::release);
        }
        None => life::release(),
    }
    ptr::null_mut()
}
