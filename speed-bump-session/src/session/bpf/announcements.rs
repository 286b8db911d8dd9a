//! Handles what BPF programs announce: forks, execs, and the first calls of Python functions.

use aya::maps::{MapData, RingBuf};
use speed_bump_abi::{Event, EventKind, PythonCodeEvent, maps::EVENTS_BYTES};

use super::{coverage::Coverage, executed};
use crate::{sys::record::read, units::Pid};

/// Handles the events in the ring buffer. One call handles no more events than the buffer can hold, because
/// processes can cause events faster than we handle them. The next turn of the event loop handles the rest.
pub(super) fn drain(events: &mut RingBuf<MapData>, coverage: &mut Coverage) {
    for _ in 0..EVENTS_BYTES as usize / size_of::<Event>() {
        let Some(record) = events.next() else { break };
        if let Some(event) = read::<Event>(&record) {
            take_up(&event, || read::<PythonCodeEvent>(&record), coverage);
        }
    }
}

fn take_up(event: &Event, code: impl FnOnce() -> Option<PythonCodeEvent>, coverage: &mut Coverage) {
    let pid = |number: u32| Pid::new(number.cast_signed());
    match EventKind::from_number(event.kind) {
        Some(EventKind::Fork) => {
            if let (Some(parent), Some(child)) = (pid(event.parent), pid(event.pid)) {
                coverage.forked(parent, child, event.detail != 0);
            }
        }
        Some(EventKind::Exec) => {
            if let Some(pid) = pid(event.pid) {
                executed::announced(pid, coverage);
            }
        }
        Some(EventKind::PythonCode) => {
            let Coverage { context, processes, engines } = coverage;
            if let (Some(record), Some(probes)) = (code(), &mut engines.probes) {
                let location = (record.event.detail, &record.key);
                probes.judge(location, record.event.pid, processes, context);
            }
        }
        None => tracing::debug!("unknown event {event:?} in the ring buffer"),
    }
}
