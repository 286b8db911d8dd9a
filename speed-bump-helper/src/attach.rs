//! The function that a loader calls.

use core::{ffi::c_void, ptr};

use speed_bump_abi::control_block::{Clock, Failure, State};

use crate::{
    block::Block,
    clock,
    fault::{self, Fault},
    from_start, host, life, session, signals, sys,
};

/// Starts a session with the control block in this file.
///
/// Under [`RunFromStart`](speed_bump_abi::control_block::HelperCommand::RunFromStart) it registers an audit
/// hook that waits for Python. Otherwise it maps the block, starts a detached thread with all signals
/// blocked, and returns; that thread does all the rest. This function takes neither the GIL nor any other
/// lock of the interpreter. It always closes the file descriptor.
///
/// Returns 0, or the number of a [`Failure`]; [`Failure::Busy`] while this process has a session.
// The loader finds it by name in the image. A test that links the library has no use for it.
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
/// The thread could not be started; the block is unmapped.
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
