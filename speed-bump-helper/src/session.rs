//! A session, on the helper's thread: from the first read of the block until everything is undone.

use core::sync::atomic::Ordering;

use speed_bump_abi::control_block::{Failure, HelperCommand, LOOK_EVERY_MS, State, notice};

use crate::{
    block::Block,
    coverage::Coverage,
    fault::Fault,
    judge::{self, Judge},
    python::{
        api::Api,
        gil::{Gil, Python},
        said::Moment,
        turn::Waited,
    },
    signals, subinterpreters,
    survey::survey,
    watch::Watch,
};

/// Number of loader checks between checks of whether calls are still reported: about a second.
const LOOKS_PER_CHECK: u32 = 1000 / LOOK_EVERY_MS;
/// How often we check for new interpreters that nothing else reported, in ms.
const OTHERS_EVERY_MS: u32 = 50;
/// How often we check whether Python has started, in ms: some of its processes live for milliseconds.
const BEGINNING_MS: u32 = 1;
/// For the time of this many checks of the loader, two seconds, we check every [`BEGINNING_MS`].
const BEGINNING_LOOKS: u32 = 2000 / LOOK_EVERY_MS;

/// After how long we report that a thread keeps the GIL, in ms.
const KEPT_MS: u32 = 300;
/// How long we wait for the GIL if we can try again later, in ms.
const SOON_MS: u32 = 20;

/// Why the work in the interpreter ended for now.
enum Done {
    /// The work is done.
    Applied,
    /// The loader no longer wants it, or is gone.
    Unwanted,
    /// The interpreter has not started yet.
    NotYet,
}

/// The state that the loader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    command: HelperCommand,
    generation: u32,
}

/// A session; any thread may run it.
pub(crate) struct Session {
    block: Block,
    watch: Watch,
    applied: Option<Wanted>,
    installed: Option<Coverage>,
    checked: u32,
}

/// Serves the block until its session is over. The session may have started on another thread. Returns the
/// state to leave the block with.
pub(crate) fn serve(block: Block, begun: Option<Session>) -> State {
    let mut session = begun.unwrap_or_else(|| {
        block.set_state(State::Waiting);
        Session::new(block)
    });
    if block.command() == HelperCommand::HandleSignals {
        return session.handle_signals();
    }
    let ended = session.find_python().and_then(|api| {
        let Some(api) = api else { return Ok(()) };
        block.head().python_version.store(api.version.hex, Ordering::Release);
        let ended = session.run(api);
        session.undo(api);
        ended
    });
    match ended {
        Ok(()) => State::Left,
        Err(fault) => {
            block.describe(&fault);
            State::Failed
        }
    }
}

/// Does the first steps of the helper's thread on a thread that has the GIL. `None`: no longer wanted.
pub(crate) fn begin(block: Block, api: &'static Api) -> Result<Option<Session>, Fault> {
    let mut session = Session::new(block);
    block.head().python_version.store(api.version.hex, Ordering::Release);
    let wanted = session.wanted();
    let Some(gil) = Gil::take(api) else { return not_there(api).map(|_| Some(session)) };
    match session.apply(gil, wanted)? {
        Done::Applied => session.applied = Some(wanted),
        Done::Unwanted => return Ok(None),
        // The helper's thread will try again.
        Done::NotYet => {}
    }
    Ok(Some(session))
}

impl Session {
    fn new(block: Block) -> Self {
        Judge::unlock();
        Self { block, watch: Watch::new(block), applied: None, installed: None, checked: 0 }
    }

    /// Undoes what was begun.
    pub(crate) fn give_up(mut self, api: &'static Api) {
        self.undo(api);
    }

    /// Waits until Python's version is known. `None`: no longer wanted.
    fn find_python(&mut self) -> Result<Option<&'static Api>, Fault> {
        let mut found = Api::look_up(Moment::WithoutGil)?;
        while found.is_none() && !self.is_over() {
            let mut result = Ok(None);
            let every_ms = self.beginning_ms();
            self.watch.wait(
                self.block,
                || every_ms,
                |_| {
                    result = Api::look_up(Moment::WithoutGil);
                    matches!(result, Ok(None))
                },
            );
            found = result?;
        }
        Ok(found)
    }

    /// How often to check whether Python has started: less often after a while, since it may never start.
    fn beginning_ms(&self) -> u32 {
        if self.watch.looks() < BEGINNING_LOOKS { BEGINNING_MS } else { LOOK_EVERY_MS }
    }

    fn run(&mut self, api: &'static Api) -> Result<(), Fault> {
        loop {
            if self.is_over() {
                return Ok(());
            }
            let wanted = self.wanted();
            if self.applied != Some(wanted) {
                let done = match self.take_gil(api) {
                    Some(gil) => self.apply(gil, wanted)?,
                    None => not_there(api)?,
                };
                match done {
                    Done::Applied => self.applied = Some(wanted),
                    Done::Unwanted => continue,
                    Done::NotYet => {}
                }
            }
            self.check(api);
            self.wait(api);
        }
    }

    /// Waits for the next check. Meanwhile covers new sub-interpreters, and keeps calls reported.
    fn wait(&mut self, api: &'static Api) {
        let block = self.block;
        let Some(coverage) = self.installed else {
            let begins = self.applied.is_none() && !is_initialized(api);
            let every_ms = if begins { self.beginning_ms() } else { LOOK_EVERY_MS };
            return self.watch.wait(block, || every_ms, |_| !begins || !is_initialized(api));
        };
        let mut since_others_ms = 0;
        let every_ms = || coverage.next_look_ms(OTHERS_EVERY_MS);
        self.watch.wait(block, every_ms, |after_ms| {
            since_others_ms += after_ms;
            // With the GIL, since then no thread finalizes Python, which frees the lock of the list.
            if since_others_ms >= OTHERS_EVERY_MS {
                since_others_ms = 0;
                if subinterpreters::are_due(api)
                    && let Some(gil) = Gil::take_in_turn(api, is_soon)
                {
                    subinterpreters::cover(gil.python(), block, coverage);
                }
            }
            if coverage.look(api, block, after_ms)
                && let Some(gil) = Gil::take_in_turn(api, is_soon)
            {
                coverage.see_to(gil.python());
            }
            true
        });
    }

    fn wanted(&self) -> Wanted {
        // Read the generation first: it may change together with the command, and is published after it.
        let generation = self.block.head().generation.load(Ordering::Acquire);
        Wanted { command: self.block.command(), generation }
    }

    /// Waits for the end of a session that needs nothing from Python.
    fn handle_signals(&mut self) -> State {
        self.block.set_state(State::Active);
        while !self.is_over() {
            self.watch.wait(self.block, || LOOK_EVERY_MS, |_| true);
        }
        State::Left
    }

    fn is_over(&self) -> bool {
        let is_gone = self.watch.loader_is_gone();
        if is_gone {
            self.block.notice(notice::LOADER_GONE);
        }
        let is_over = is_gone || self.block.command() == HelperCommand::Leave;
        if is_over {
            // First, as a thread that spins may hold the interpreter's lock.
            signals::end();
        }
        is_over
    }

    /// The GIL; `None` if the wanted state changes meanwhile.
    fn take_gil(&mut self, api: &'static Api) -> Option<Gil> {
        let (block, watch) = (self.block, &mut self.watch);
        let mut looked_ms = 0;
        Gil::take_in_turn(api, |waited| {
            if waited.ms >= KEPT_MS && !waited.is_busy {
                block.notice(notice::GIL_KEPT);
            }
            if waited.ms.saturating_sub(looked_ms) >= LOOK_EVERY_MS {
                looked_ms = waited.ms;
                watch.look(block);
            }
            block.command() != HelperCommand::Leave && !watch.loader_is_gone()
        })
    }

    fn apply(&mut self, mut gil: Gil, wanted: Wanted) -> Result<Done, Fault> {
        // It may have taken long to get here.
        if self.block.command() == HelperCommand::Leave {
            return Ok(Done::Unwanted);
        }
        judge::prepare(gil.python())?;
        let known =
            Judge::current().filter(|judge| self.applied.is_some() && judge.generation == wanted.generation);
        let judge = match known {
            Some(judge) => judge,
            None => match Judge::adopt(self.block, wanted.generation)? {
                Some(judge) => judge,
                None => return Ok(Done::NotYet),
            },
        };
        if let (Some(coverage), None) = (self.installed, known) {
            coverage.rejudge(gil.python())?;
        }
        let block = self.block;
        if known.is_none() && !survey(&mut gil, block, judge, || block.command() != HelperCommand::Leave)? {
            return Ok(Done::Unwanted);
        }
        self.cover(&mut gil, wanted.command)?;
        if let Some(coverage) = self.installed {
            subinterpreters::cover_all(gil.python(), block, coverage);
        }
        self.block.head().applied_generation.store(wanted.generation, Ordering::Release);
        self.block.set_state(State::Active);
        Ok(Done::Applied)
    }

    /// Starts or stops reports of calls, according to the command.
    fn cover(&mut self, gil: &mut Gil, command: HelperCommand) -> Result<(), Fault> {
        match (command, self.installed) {
            (HelperCommand::Run, None) => {
                let coverage = Coverage::for_version(gil.python().api);
                coverage.install(gil, self.block)?;
                self.installed = Some(coverage);
            }
            (HelperCommand::Survey, Some(coverage)) => {
                self.uncover(gil.python(), coverage);
                self.installed = None;
            }
            (HelperCommand::Run, Some(coverage)) => coverage.surveyed(gil.python())?,
            _ => {}
        }
        Ok(())
    }

    /// Checks about once a second whether calls are still reported, unless a call shows it.
    fn check(&mut self, api: &'static Api) {
        let Some(coverage) = self.installed else { return };
        if self.watch.looks().wrapping_sub(self.checked) < LOOKS_PER_CHECK {
            return;
        }
        self.checked = self.watch.looks();
        if coverage.check_is_due()
            && let Some(gil) = Gil::take_in_turn(api, is_soon)
        {
            self.block.notice(coverage.check(gil.python()));
        }
    }

    fn undo(&mut self, api: &'static Api) {
        if let Some(coverage) = self.installed.take()
            && let Some(gil) = Gil::take_in_turn(api, |_| true)
        {
            self.uncover(gil.python(), coverage);
        }
    }

    fn uncover(&mut self, python: Python<'_>, coverage: Coverage) {
        subinterpreters::uncover(python, coverage);
        self.block.notice(coverage.uninstall(python));
    }
}

fn is_initialized(api: &Api) -> bool {
    // SAFETY: the function needs nothing.
    unsafe { (api.is_initialized)() != 0 }
}

fn is_soon(waited: Waited) -> bool {
    waited.ms <= SOON_MS
}

fn not_there(api: &Api) -> Result<Done, Fault> {
    // SAFETY: the function needs nothing.
    if unsafe { (api.is_finalizing)() } != 0 {
        return Err(Fault::new(Failure::Finalizing, &["the interpreter is shutting down"]));
    }
    Ok(Done::NotYet)
}
