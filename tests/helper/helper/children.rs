//! The helper in a process that forks.

use speed_bump_abi::control_block::{HelperCommand, State};

use super::loaded::{all, attach_command, attached, on_each};
use crate::control::Control;

#[test]
fn a_forked_child_goes_on_until_the_session_ends() {
    on_each(all(), |python| {
        let (mut service, hits, control) = attached(python, "*/calls.py:plain\n*/calls.py:other\n");
        service.ask("child(Forked)").unwrap();
        let calls = "CHILD.ask('times(10, plain, 1)')";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 10, "{python}");
        let defined = "CHILD.ask('exec(\"def plain(x): pass\", globals()); times(4, plain, 1)')";
        assert_eq!(hits.during(|| drop(service.ask(defined).unwrap())), 0, "{python}: another file");
        // The child has no thread of the helper; its callback sees the new generation itself.
        control.retarget("*/calls.py:late\n*/calls.py:other\n");
        control.wait_for_generation();
        let calls = "CHILD.ask('times(1, other, 1); times(6, late, 1)')";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 7, "{python}");
        control.command(HelperCommand::Leave);
        control.wait_for(State::Left);
        let calls = "CHILD.ask('times(10, late, 1)')";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 0, "{python}");
        // A session of the child's own.
        let own = Control::new("*/calls.py:late\n", HelperCommand::Run);
        let command = attach_command(&hits, &own, "assert 0 == (").replace('\'', "\\'");
        service.ask(&format!("CHILD.ask('{command}')")).unwrap();
        own.wait_for(State::Active);
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 10, "{python}");
        own.command(HelperCommand::Leave);
        own.wait_for(State::Left);
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 0, "{python}");
    });
}

#[test]
fn a_child_gets_a_session_while_its_parent_has_one() {
    on_each(all(), |python| {
        let (mut service, hits, control) = attached(python, "*/calls.py:plain\n");
        service.ask("child(Forked)").unwrap();
        let own = Control::new("*/calls.py:other\n", HelperCommand::Run);
        let command = attach_command(&hits, &own, "assert 0 == (").replace('\'', "\\'");
        service.ask(&format!("CHILD.ask('{command}')")).unwrap();
        own.wait_for(State::Active);
        let calls = "CHILD.ask('times(10, plain, 1); times(7, other, 1)')";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 7, "{python}");
        let calls = "times(10, plain, 1); times(7, other, 1)";
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 10, "{python}");
        own.command(HelperCommand::Leave);
        own.wait_for(State::Left);
        assert_eq!(hits.during(|| drop(service.ask(calls).unwrap())), 10, "{python}");
        assert_eq!(control.notices(), 0, "{python}");
    });
}
