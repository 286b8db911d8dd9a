//! Processes with more mappings, threads and children than any service has: inspecting them takes little
//! memory, and ends.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use speed_bump_testing::{Fixture, Service, session::obstacle, skip};

use crate::hostile_memory::tool::Tool;

/// The tool's memory, in MiB.
const MAX_MIB: i64 = 192;
const TARGETS: &str = "native:*/program:work delay=0\n";

#[test]
fn crowded_processes_are_listed_attached_to_and_sampled_in_little_memory() {
    if let Some(why) = obstacle() {
        return skip!("{why}");
    }
    let source = include_str!("hostile_crowds/crowd.c");
    let fixture = Fixture::compile_text(source, &["-O1", "-pthread"]).unwrap();
    for kind in ["mappings", "threads", "children"] {
        let service = Service::start(Command::new(fixture.program()).arg(kind)).unwrap();
        let number = service.ready()["number"].to_string();
        let listed = Tool::start(&["list"], service.pid(), TARGETS).finish();
        assert!(listed.status.success(), "{number} {kind}: {}", listed.said());
        let session = Tool::session(&["--duration", "1s"], service.pid(), TARGETS).finish();
        let calls = session.report()["targets"][0]["calls"].as_u64();
        assert!(calls.is_some_and(|calls| calls > 0), "{number} {kind}: {}", session.said());
        let sampled = Tool::on(&["sweep", "--plan", "--for", "20s"], service.pid()).finish();
        assert!(sampled.status.code().is_some(), "{number} {kind}: {}", sampled.said());
        for ended in [listed, session, sampled] {
            assert!(ended.peak_mib < MAX_MIB, "{number} {kind}: {} MiB: {}", ended.peak_mib, ended.said());
        }
    }
}
