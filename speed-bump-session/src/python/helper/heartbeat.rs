//! A thread that shows helpers that we live.
//!
//! The heartbeat has a thread of its own, because attaching and detaching can take seconds.

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

/// The heartbeat's thread. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct Heartbeat {
    blocks: Option<mpsc::Sender<Weak<Block>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Heartbeat {
    /// Starts the thread, without blocks.
    ///
    /// # Errors
    /// We could not start the thread.
    pub fn start() -> io::Result<Self> {
        let (blocks, new) = mpsc::channel();
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(move || beat(&new))?;
        Ok(Self { blocks: Some(blocks), thread: Some(thread) })
    }

    /// Gives the helper with this block the heartbeat, until the block is dropped.
    pub fn add(&self, block: &Arc<Block>) {
        // If the receiver is gone, the thread has panicked. Then the helpers leave by themselves.
        let _ = self.blocks.as_ref().map(|blocks| blocks.send(Arc::downgrade(block)));
    }
}

fn beat(new: &mpsc::Receiver<Weak<Block>>) {
    // A helper that gets no heartbeat for 0.8 s concludes that we are dead. If the machine is busy, we may
    // not get a processor for that long. Without the right to real-time priority, the thread keeps its normal
    // priority.
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
        // We ignore errors here: the code that reads the block notices them.
        blocks.retain(|block| block.upgrade().is_some_and(|block| block.beat().is_ok()));
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        drop(self.blocks.take());
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}
