//! How sessions of the helper end: the loader has it leave, or dies, or the process ends first.

use speed_bump_abi::control_block::{Failure, HelperCommand, State, notice};
use speed_bump_testing::{case_ran, skip_case, wait::wait_until};

use super::loaded::{
    STUB, all, attach, attach_command, attached, descriptors, evaluate, monitored, on_each, start, threads,
};
use crate::{control::Control, hits::Hits};

#[test]
fn leaving_undoes_everything_and_another_session_can_follow() {
    on_each(monitored(), |python| {
        let (mut service, hits, control) = attached(python, "*/calls.py:plain\n");
        let tools = "sum(sys.monitoring.get_tool(i) is not None for i in range(6))";
        let events = "sum(sys.monitoring.get_events(i) for i in range(6) if sys.monitoring.get_tool(i))";
        assert_eq!(evaluate(&mut service, tools), 1, "{python}");
        assert_eq!(attach(&mut service, &hits, &control), i64::from(Failure::Busy as u32), "{python}");
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        wait_until("the thread's end", || Ok(threads(&service) == 1)).unwrap();
        assert_eq!((evaluate(&mut service, tools), evaluate(&mut service, events)), (0, 0), "{python}");
        assert_eq!(hits.during(|| drop(service.ask("times(10, plain, 1)").unwrap())), 0, "{python}");
        let open = descriptors(&service);
        for round in 0..20 {
            let targets = if round % 2 == 0 { "*/calls.py:other\n" } else { "*/calls.py:plain\n" };
            let control = Control::new(targets, HelperCommand::Run);
            assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
            control.wait_for(State::Active);
            let count = hits.during(|| drop(service.ask("times(10, plain, 1); times(7, other, 1)").unwrap()));
            assert_eq!(count, if round % 2 == 0 { 7 } else { 10 }, "{python}");
            control.command(HelperCommand::Leave);
            control.wait_for(State::Left);
            assert_eq!(hits.during(|| drop(service.ask("times(10, plain, 1)").unwrap())), 0, "{python}");
        }
        wait_until("the thread's end", || Ok(threads(&service) == 1)).unwrap();
        assert_eq!(descriptors(&service), open, "{python}");
        assert!(service.quit().unwrap().success(), "{python}");
    });
}

#[test]
fn the_helper_leaves_when_the_loader_dies() {
    on_each(all(), |python| {
        let (mut service, hits, mut control) = attached(python, "*/calls.py:plain\n");
        control.die();
        control.wait_for(State::Left);
        assert_eq!(control.notices(), notice::LOADER_GONE, "{python}");
        assert_eq!(hits.during(|| drop(service.ask("times(10, plain, 1)").unwrap())), 0, "{python}");
    });
}

#[test]
fn a_process_ends_as_without_the_helper() {
    on_each(all(), |python| {
        let (mut service, _hits, control) = attached(python, "*:*\n");
        service.ask("times(10, plain, 1)").unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
        assert_eq!(control.state(), State::Active as u32, "{python}");
    });
}

#[test]
fn a_process_ends_while_the_helper_waits_for_it() {
    on_each(all(), |python| {
        for milliseconds in [0, 30, 300] {
            let mut service = start(python);
            let hits = Hits::at_stub(STUB);
            let control = Control::new("*:*\n", HelperCommand::Survey);
            assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
            // `PyDLL` keeps the GIL, and leaves no time to take it.
            let held = format!("ctypes.PyDLL(None).usleep({milliseconds}000); sys.exit(3)");
            let _ = service.ask(&held);
            let status = service.wait(std::time::Duration::from_secs(30)).unwrap();
            assert_eq!(status.code(), Some(3), "{python}: {status}");
        }
    });
}

#[test]
fn the_helper_leaves_while_it_waits() {
    on_each(all(), |python| {
        let mut service = start(python);
        let hits = Hits::at_stub(STUB);
        let control = Control::new("*:*\n", HelperCommand::Run);
        let command = attach_command(&hits, &control, "ATTACH = lambda: (");
        let held = "held = ctypes.PyDLL(None); held.usleep(500000)";
        // Without the GIL until the command is there: `CDLL` gives it away for the call itself alone.
        service.ask(&command.replace("CDLL", "PyDLL")).unwrap();
        let waits = std::thread::spawn(move || {
            service.ask(&format!("assert ATTACH() == 0; {held}")).map(|_| service)
        });
        control.wait_for(State::Waiting);
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        let mut service = waits.join().unwrap().unwrap();
        if python.free_threaded {
            skip_case!(python, "nothing keeps a thread waiting without a GIL");
        } else {
            case_ran!();
            assert_eq!(control.functions(), [], "{python}");
        }
        assert!(service.is_running());
    });
}

#[test]
fn sessions_come_and_go_under_load() {
    on_each(all(), |python| {
        let mut service = start(python);
        let hits = Hits::at_stub(STUB);
        service
            .ask(
                "exec('def load():\\n while True:\\n  exec(\\'def made(x): return x\\', globals())\\n  \
                 times(100, plain, 1); times(100, made, 1)', globals())",
            )
            .unwrap();
        // A thread that asks for the interpreter's lock waits this long for each of them, many times a round.
        service.ask("sys.setswitchinterval(0.0005)").unwrap();
        service.ask("for _ in range(4): threading.Thread(target=load, daemon=True).start()").unwrap();
        let alone = threads(&service);
        for round in 0..25 {
            let control = Control::new("*/calls.py:plain\n<string>:made\n", HelperCommand::Run);
            assert_eq!(attach(&mut service, &hits, &control), 0, "{python}");
            control.wait_for(State::Active);
            if round % 2 == 0 {
                control.retarget("*/calls.py:late\n*/calls.py:outer\n");
                control.wait_for_generation();
                let count =
                    hits.during(|| drop(service.ask("times(10, late, 1); times(7, outer, 1)").unwrap()));
                assert_eq!(count, 17, "{python}");
            } else {
                wait_until("a call", || Ok(hits.count() > 0)).unwrap();
            }
            control.command(HelperCommand::Leave);
            control.wait_for(State::Left);
            assert_eq!(control.notices(), 0, "{python}");
        }
        assert_eq!(hits.during(|| drop(service.ask("times(1000, plain, 1)").unwrap())), 0, "{python}");
        wait_until("the thread's end", || Ok(threads(&service) == alone)).unwrap();
        assert!(service.quit().unwrap().success(), "{python}");
    });
}
