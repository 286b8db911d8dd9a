//! Which tests run in guests.

use super::{Engine, Program};

/// The tool's main paths, each with the real kernel, as far as time permits: a session takes seconds here.
/// Tests of the tool's own code run on the host.
pub(in crate::vm) const PROGRAMS: [Program; 25] = [
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
        area: "native",
        name: "native_callers",
        tests: &[
            "the_first_line_with_a_caller_takes_the_call",
            "other_calls_are_neither_counted_nor_delayed",
            "processes_and_their_children_have_callers_at_addresses_of_their_own",
            "calls_are_timed_by_caller",
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
