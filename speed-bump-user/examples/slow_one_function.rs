//! Slows functions of a running process down, by another delay every half second, and says what was counted:
//!
//! `sudo target/debug/examples/slow_one_function PID 'native:*/libc.so*:malloc'`

use std::{error::Error, sync::Arc, thread, time::Duration};

use speed_bump_user::{
    calibrate::Calibration,
    engine::EngineChoice,
    kernel::KernelFacts,
    policy::{Dose, PolicyTable, Selection},
    probe::resolve::Resolver,
    process::Process,
    python::entry_source::EntryChoice,
    session::{Session, Settings, stop::Stop},
    targets::{Reading, TargetIndex, Targets},
    units::Nanos,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, target] = arguments.as_slice() else { return Err("give a PID and a target".into()) };
    let process = Process::open(pid.parse()?)?;
    let reading = Reading { is_elf: &|_| false, allow_empty: false };
    let targets = Arc::new(Targets::parse("target", target.as_bytes(), reading)?);
    let calibration = Arc::new(Calibration::measure(&KernelFacts::read())?);
    let dose = |us: u64| Dose { delay: Nanos(1_000 * us), frequency: 1 };
    let settings = Settings {
        policies: PolicyTable::new(&targets, dose(0), EngineChoice::Auto),
        start_after: Duration::ZERO,
        duration: None,
        children: false,
        strict: true,
        inject_timeout: Duration::from_secs(2),
    };
    let resolver = Resolver::new(targets, calibration, EntryChoice::Auto, true);
    let plan = resolver.plan(&process)?;

    let session = Session::spawn(resolver, settings, vec![(process, plan)], None, Stop::default())?;
    let mut before = session.snapshot()?;
    for us in 1..=10 {
        session.set(&[(Selection::Target(TargetIndex(0)), dose(us))])?;
        thread::sleep(Duration::from_millis(500));
        let now = session.snapshot()?;
        for (function, stats) in now.since(&before).functions() {
            println!(
                "{us} us: {} was called {} times, {} delayed",
                function.name, stats.calls, stats.delayed
            );
        }
        before = now;
    }
    session.stop();
    session.wait()?;
    Ok(())
}
