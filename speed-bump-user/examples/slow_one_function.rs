//! Slows functions of a running process down, by another delay every half second, and says what was counted:
//!
//! `sudo target/debug/examples/slow_one_function PID 'native:*/libc.so*:malloc'`

use std::{error::Error, thread, time::Duration};

use speed_bump_user::{
    policy::{Dose, Selection},
    prepare::{Prepared, Purpose, Request},
    session::stop::Stop,
    targets::{TargetIndex, source::TargetSource},
    units::Nanos,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, target] = arguments.as_slice() else { return Err("give a PID and a target".into()) };

    // A request without a delay counts calls, and delays none.
    let request = Request::new(TargetSource::lines("target", &[target]));
    let prepared = Prepared::of_processes(&[pid.parse()?], &request, Purpose::Attach)?;
    prepared.notices.iter().for_each(|notice| eprintln!("{notice:?}"));
    let session = prepared.start(Stop::default())?;

    let mut before = session.snapshot()?;
    for us in 1..=10 {
        let dose = Dose { delay: Nanos(1_000 * us), frequency: 1 };
        session.set(&[(Selection::Target(TargetIndex(0)), dose)])?;
        thread::sleep(Duration::from_millis(500));
        let now = session.snapshot()?;
        for (function, stats) in now.since(&before).functions() {
            let (name, calls) = (&function.name, stats.calls);
            println!("{us} us: {name} was called {calls} times, {} delayed", stats.delayed);
        }
        before = now;
    }
    session.stop();
    session.wait()?;
    Ok(())
}
