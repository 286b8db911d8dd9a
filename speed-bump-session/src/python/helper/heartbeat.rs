//! A thread that shows the helpers that we live.
//!
//! A thread of its own, as attaching and detaching can take seconds.

use std::{
    io,
    sync::{
        Arc, Weak,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use speed_bump_abi::control_block::HEARTBEAT_EVERY_MS;

use super::block::Block;
use crate::sys::priority;

/// The thread; dropping this ends it.
#[derive(Debug)]
pub struct Heartbeat {
    blocks: Option<mpsc::Sender<Weak<Block>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts the thread, without blocks.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start() -> io::Result<Self> {
        let (blocks, new) = mpsc::channel();
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(move || beat(&new))?;
        Ok(Self { blocks: Some(blocks), thread: Some(thread) })
    }

    /// From now on the helper with this block gets the heartbeat, until the block is dropped.
    pub fn add(&self, block: &Arc<Block>) {
        // If there is no receiver, the thread has panicked, and the helpers leave.
        let _ = self.blocks.as_ref().map(|blocks| blocks.send(Arc::downgrade(block)));
    }
}

fn beat(new: &mpsc::Receiver<Weak<Block>>) {
    // A helper without our heartbeat for 0.8 s concludes that we are dead: that is not long on a busy
    // machine. Without the right to real-time priority, we do what we can.
    if let Err(error) = priority::urgent() {
        tracing::debug!("the heartbeat has no real-time priority: {error}");
    }
    let mut blocks: Vec<Weak<Block>> = Vec::new();
    loop {
        match new.recv_timeout(Duration::from_millis(u64::from(HEARTBEAT_EVERY_MS))) {
            Ok(block) => blocks.push(block),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // A failure to write is noticed by the code that reads the block.
        blocks.retain(|block| block.upgrade().is_some_and(|block| block.beat().is_ok()));
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.blocks.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
