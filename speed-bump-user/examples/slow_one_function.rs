//! Slows functions of a running process down, changes the delay every half second, and prints the counters:
//!
//! `sudo target/debug/examples/slow_one_function PID 'native:*/libc.so*:malloc'`

use std::{error::Error, thread, time::Duration};

use speed_bump_user::{Dose, Nanos, Prepared, Purpose, Request, Selection, Stop, TargetIndex, TargetSource};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, target] = arguments.as_slice() else { return Err("give a PID and a target".into()) };

    // A request without a delay counts calls, and delays none.
    let request = Request::new(TargetSource::lines("target", &[target]));
    let prepared = Prepared::of_processes(&[pid.parse()?], &request, Purpose::Attach)?;
    let session = prepared.start(Stop::default())?;
    for us in 1..=10 {
        let before = session.snapshot()?;
        let dose = Dose { delay: Nanos(1_000 * us), frequency: 1 };
        session.set(&[(Selection::Target(TargetIndex(0)), dose)])?;
        thread::sleep(Duration::from_millis(500));
        for (function, stats) in session.snapshot()?.since(&before).functions() {
            let (name, calls) = (&function.name, stats.calls);
            println!("{us} us: {name} was called {calls} times, {} delayed", stats.delayed);
        }
    }
    session.stop();
    session.wait()?;
    Ok(())
}
