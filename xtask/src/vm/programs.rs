//! The tests that run in guests: built here, and put where they expect their files. Each test file runs as a
//! program of its own, so that one that dies does not end the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use serde_json::Value;
use speed_bump_testing::{places as tree, pythons, wait};

use super::{files::Files, places, root};
use crate::{
    release, shell,
    system::{self, Need},
};

/// An engine of the tool; tests are counted by engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The BPF program.
    Bpf,
    /// The helper, on a signal.
    Signal,
    /// The kernel module in kmod/, which these tests load themselves.
    Kmod,
}

impl Engine {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Bpf, Self::Signal, Self::Kmod];
}

/// A file of end-to-end tests that runs in guests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The area whose test program has it: a folder of `tests`.
    area: &'static str,
    /// Its name, which is that of the module.
    pub(super) name: &'static str,
    /// Its tests that run by default. If it is named, all run.
    tests: &'static [&'static str],
    /// The engine that it uses.
    pub(super) engine: Engine,
}

impl Program {
    /// Arguments for the area's test program, to run these tests.
    fn arguments(&self, job: Job) -> String {
        let Self { name, tests, .. } = self;
        if job == Job::Whole {
            return format!("{name}::");
        }
        let tests = tests.iter().map(|test| format!(" {name}::{test}"));
        format!("--exact{}", tests.collect::<String>())
    }
}

/// The tool's main paths, each with the real kernel, as far as time permits: a session takes seconds here.
/// Tests of the tool's own code run on the host.
pub(super) const PROGRAMS: [Program; 24] = [
    Program {
        area: "native",
        name: "native_functions",
        tests: &[
            "functions_of_the_executable_and_of_a_library_are_counted_exactly",
            "calls_of_many_threads_are_counted_exactly",
            "workers_that_run_before_during_and_after_are_counted_as_they_count_themselves",
            "functions_of_libc_that_python_calls",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "native",
        name: "session_usdt",
        tests: &[
            "all_locations_of_a_probe_count_while_attached_and_only_then",
            "frequency_counts_over_the_locations",
            "the_semaphore_is_down_in_children_too",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "native",
        name: "native_times",
        tests: &[
            "of_a_recursion_the_outermost_call_alone_is_cumulative",
            "a_function_is_timed_by_whichever_way_it_is_left",
            "calls_that_longjmp_leaves_are_left_out_and_the_others_are_not",
            "threads_and_children_have_calls_of_their_own",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "session_policy",
        tests: &[
            "a_delay_of_zero_counts_and_delays_nothing",
            "the_window_opens_and_closes_and_ends_the_session",
            "frequency_counts_calls_inside_the_window_alone",
            "every_call_that_is_not_delayed_is_told_of_or_counted_as_left_out",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "leaving",
        name: "session_leaving",
        tests: &[
            "the_exec_of_the_target_ends_the_session",
            "the_process_runs_on_when_the_loader_is_killed",
            "a_long_spin_in_flight_does_not_hold_up_detaching",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "leaving",
        name: "session_expiry",
        tests: &[
            "nothing_is_delayed_any_more_when_the_loader_was_stopped",
            "a_spin_in_flight_ends_when_the_loader_was_stopped",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "session_doses",
        tests: &[
            "doses_of_targets_change_from_one_call_to_the_next",
            "a_function_can_have_a_dose_of_its_own",
            "every_nth_call_is_delayed_from_the_change_on",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "session_bound",
        tests: &[
            "python_functions_are_delayed_for_a_share_of_the_time_whatever_is_asked",
            "native_functions_are_delayed_for_a_share_of_the_time_whatever_is_asked",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "agent",
        tests: &[
            "doses_are_set_and_calls_counted",
            "what_becomes_of_processes_is_told",
            "the_end_of_the_input_and_signals_detach",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "session_control",
        tests: &["doses_change_without_attaching_anew", "what_runs_is_listed_as_long_as_it_runs"],
        engine: Engine::Bpf,
    },
    Program {
        area: "policy",
        name: "session_targets",
        tests: &["a_session_follows_its_targets_file", "targets_are_added_and_dropped_by_hand"],
        engine: Engine::Bpf,
    },
    Program {
        area: "processes",
        name: "session_children",
        tests: &[
            "children_are_covered_however_they_start",
            "children_of_an_earlier_session_are_counted_and_delayed_once",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "metric",
        name: "sockets",
        tests: &[
            "requests_are_counted_exactly_whatever_the_socket",
            "pieces_of_requests_and_of_answers_are_told_apart",
            "requests_without_an_answer_are_in_flight_until_the_connection_is_closed",
            "workers_come_and_go",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "hostile",
        name: "hostile_files",
        tests: &[
            "what_overlayfs_has_copied_since_it_was_mapped_is_counted",
            "files_that_nothing_leads_to_are_named",
            "children_of_a_program_that_is_copied_later_are_counted_once",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "injection",
        name: "hostile_injection",
        tests: &[
            "no_file_is_overwritten_that_a_thread_puts_in_place_of_the_memory_file",
            "a_service_near_its_memory_limit_lives_on_without_the_helper",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "helper",
        name: "helper_calls",
        tests: &["every_shape_of_function_is_counted_exactly", "the_delay_is_seen_from_inside"],
        engine: Engine::Bpf,
    },
    Program {
        area: "engines",
        name: "signal_engine",
        tests: &[
            "the_helper_spins_for_the_program_and_gives_its_signal_back",
            "a_program_that_takes_the_signal_for_itself_is_left_alone",
            "threads_that_block_the_signal_are_missed_and_live",
            "no_wait_of_64_native_threads_is_interrupted",
            "a_handler_that_goes_while_the_signal_is_on_its_way_is_no_death",
            "no_random_sequence_ends_in_a_death",
        ],
        engine: Engine::Signal,
    },
    Program {
        area: "engines",
        name: "old_kernel",
        tests: &[
            "long_delays_of_native_functions_are_the_helpers",
            "short_delays_are_spun_by_the_program",
            "what_cannot_be_had_is_refused_with_the_way_out",
            "doctor_and_calibrate_tell_of_it",
        ],
        engine: Engine::Signal,
    },
    Program {
        area: "python",
        name: "python_perf_map",
        tests: &["every_shape_of_function_is_counted_exactly", "calls_from_c_are_counted_exactly"],
        engine: Engine::Bpf,
    },
    Program {
        area: "run",
        name: "run_command",
        tests: &[
            "native_functions_are_counted_from_the_first_call_on",
            "our_death_leaves_the_command_alone",
            "signals_are_passed_on_once",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "run",
        name: "run_python",
        tests: &[
            "calls_at_import_time_are_counted_exactly",
            "programs_that_execute_others_are_followed",
            "forked_workers_are_covered_from_their_first_call_on",
        ],
        engine: Engine::Bpf,
    },
    Program {
        area: "engines",
        name: "kmod_engine",
        tests: &[
            "calls_are_counted_exactly_and_delayed_as_seen_from_inside",
            "children_are_slowed_down_too",
            "the_window_is_made_by_rewriting_delays",
            "whatever_ends_a_run_but_a_kill_leaves_nothing",
            "delays_that_end_early_are_told_of",
            "what_a_killed_run_left_goes_with_the_next_and_a_live_one_stays",
            "the_end_may_come_at_any_moment",
            "two_runs_at_once_share_the_module",
            "other_peoples_targets_are_left_alone",
            "a_library_that_is_opened_later_is_taken_up",
            "a_process_with_another_root_is_reached_through_it",
            "doctor_tells_of_the_module_and_of_what_is_left_there",
            "upstreams_module_is_told_of_our_descriptors_and_keeps_nothing",
        ],
        engine: Engine::Kmod,
    },
    Program {
        area: "engines",
        name: "kmod_refusals",
        tests: &[
            "without_the_module_the_error_says_what_to_do",
            "what_the_module_cannot_do_is_refused_whether_it_is_there_or_not",
            "what_is_too_much_is_refused_and_nothing_is_touched",
            "every_error_of_the_module_is_a_sentence",
            "what_cannot_be_stepped_over_is_left_out_before_the_module_is_asked",
            "who_may_not_write_is_told_so",
        ],
        engine: Engine::Kmod,
    },
    Program {
        area: "engines",
        name: "kernel_module",
        tests: &[
            "targets_come_count_and_go",
            "every_error_is_the_documented_one",
            "processes_are_told_apart",
            "spins_last_and_end",
            "the_listing_is_whole",
            "files_are_found_whatever_becomes_of_them",
            "random_commands_do_no_harm",
            "what_happens_at_once_does_no_harm",
        ],
        engine: Engine::Kmod,
    },
];

/// How long a program may take in a guest, in seconds.
const LIMIT_S: u32 = 15 * 60;
/// The package whose tests they are.
const PACKAGE: &str = "speed-bump-tests";
/// The job that runs them, and one that lets a person do it.
const TESTS: &str = include_str!("tests.sh");
const SHELL: &str = include_str!("shell.sh");
const GCC: &str = include_str!("gcc.sh");
/// How many times slower than an ordinary machine an emulated guest on a busy host is.
const SLOWNESS: u32 = 5;
/// How many random sequences a guest has time for.
const SEQUENCES: u32 = 100;
/// Where the job finds files that earlier guests compiled.
const COMPILED: &str = "/guest/compiled";

/// Where guests have the kernel module, if one could be built for them.
const MODULE: &str = "/guest/speed_bump.ko";

/// Built test programs, by area, and the tool.
#[derive(Debug)]
pub(super) struct Built {
    tests: BTreeMap<String, PathBuf>,
    tool: PathBuf,
}

const STRIP: Need =
    Need { program: "strip", package: "binutils", purpose: "to leave debugging information out of guests" };

/// Builds these programs and the tool.
pub(super) fn build(programs: &[&Program]) -> Result<Built> {
    system::ensure(&[STRIP])?;
    let mut command = shell::cargo();
    command.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--package", PACKAGE]);
    for area in areas(programs) {
        command.args(["--test", area]);
    }
    let messages = shell::output_shown(&mut command)?;
    let tests = executables(&messages);
    // Its optimised build: otherwise it takes seconds to start here.
    let tool = release::build()?;
    Ok(Built { tests, tool })
}

/// The areas of these programs, each once.
fn areas(programs: &[&Program]) -> BTreeSet<&'static str> {
    programs.iter().map(|program| program.area).collect()
}

/// The test programs among cargo's messages, by the names of their targets.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|message| message["target"]["kind"][0] == "test")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

/// What the job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// The programs' chosen tests.
    Chosen,
    /// All of their tests.
    Whole,
    /// A shell.
    Shell,
}

/// A job with these programs, and with all that they need.
pub(super) fn files(programs: &[&Program], built: &Built, job: Job) -> Result<Files> {
    let files = Files::new(&places::all())?;
    let (root, target) = (tree::root(), tree::target());
    // Programs find the tree by its lock file.
    files.copy_stripped(&built.tool, &built.tool)?;
    let path = |area| built.tests.get(area).with_context(|| format!("cargo built no {area}"));
    for area in areas(programs) {
        files.copy_stripped(path(area)?, path(area)?)?;
    }
    let mut list = String::new();
    for program in programs {
        let (path, arguments) = (path(program.area)?, program.arguments(job));
        let _ = writeln!(list, "{} {LIMIT_S} {} {arguments}", program.name, path.display());
    }
    let package = root.join("tests");
    for part in [root.join("Cargo.lock"), root.join("Cargo.toml"), package.clone()] {
        files.copy(&part, &part)?;
    }
    files.folder(&target.join("tmp"))?;
    if places::compiled().is_dir() {
        files.copy(&places::compiled(), Path::new(COMPILED))?;
    }
    let environment = [
        ("CARGO_MANIFEST_DIR", package.display().to_string()),
        ("SPEED_BUMP_TOOL", built.tool.display().to_string()),
        ("SPEED_BUMP_PYTHONS", root::PYTHONS.to_owned()),
        (pythons::WANTED_VARIABLE, root::NEWER_PYTHON.to_owned()),
        (wait::SLOWNESS_VARIABLE, SLOWNESS.to_string()),
        ("SPEED_BUMP_SEQUENCES", SEQUENCES.to_string()),
        ("SPEED_BUMP_MODULE", MODULE.to_owned()),
        ("RUST_BACKTRACE", "1".to_owned()),
    ];
    let mut text = format!("cd \"{}\"\n", package.display());
    for (name, value) in environment {
        let _ = writeln!(text, "export {name}=\"{value}\"");
    }
    files.write(Path::new("/guest/environment"), &text, 0o644)?;
    files.write(Path::new("/guest/programs"), &list, 0o644)?;
    let job = if job == Job::Shell { SHELL } else { TESTS };
    for (command, text) in [("job", job), ("tests", TESTS), ("bin/gcc", GCC), ("bin/cc", GCC)] {
        files.write(&Path::new("/guest").join(command), text, 0o755)?;
    }
    Ok(files)
}

/// Adds the kernel module, and what its own tests need.
pub(super) fn add_module(files: &Files, module: &Path) -> Result<()> {
    let tests = tree::root().join("kmod/tests");
    shell::output(Command::new("make").arg("-C").arg(&tests).arg("guest"))?;
    files.copy(module, Path::new(MODULE))?;
    files.copy(&tests, &tests)
}

/// Keeps the files that a guest compiled, for the next one.
pub(super) fn keep_compiled(results: &Path) -> Result<()> {
    let compiled = results.join("compiled");
    if compiled.is_dir() {
        let kept = places::compiled();
        shell::output(
            Command::new("cp").args(["--archive", "--no-target-directory"]).arg(compiled).arg(kept),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn chosen_tests_exist() {
        for program in &PROGRAMS {
            let path = tree::root().join("tests").join(program.area).join(format!("{}.rs", program.name));
            let source = fs::read_to_string(&path).unwrap();
            assert!(!program.tests.is_empty(), "{}", program.name);
            for test in program.tests {
                assert!(source.contains(&format!("#[test]\nfn {test}() {{")), "{}: {test}", program.name);
            }
        }
    }

    #[test]
    fn a_program_is_a_part_of_its_areas() {
        let [first, second] = [&PROGRAMS[0], &PROGRAMS[1]];
        assert_eq!((first.area, second.area), ("native", "native"));
        assert_eq!(areas(&[first, second]).len(), 1);
        assert_eq!(first.arguments(Job::Whole), "native_functions::");
        let chosen = second.arguments(Job::Chosen);
        assert!(chosen.starts_with("--exact session_usdt::all_locations_"), "{chosen}");
        assert!(chosen.contains(" session_usdt::frequency_counts_over_the_locations "), "{chosen}");
    }

    #[test]
    fn test_programs_are_told_by_name() {
        let text = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"lib"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"speed-bump-ebpf"},"executable":"/t/debug/speed-bump-ebpf"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"native"},"executable":"/t/debug/deps/native-1"}
{"reason":"build-finished","success":true}
"#;
        let found: Vec<_> = executables(text).into_iter().collect();
        assert_eq!(found, [("native".to_owned(), PathBuf::from("/t/debug/deps/native-1"))]);
    }
}
