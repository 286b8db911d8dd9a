//! Python functions, by the ways that need no helper, and every shape of function on every interpreter.

mod compiled_functions;
mod python_children;
mod python_frozen;
mod python_jit;
mod python_late_library;
mod python_late_trampolines;
mod python_list;
mod python_main;
mod python_matrix;
mod python_packages;
mod python_perf_map;
mod python_stale_map;
mod python_targets;
mod python_unsupported;
mod python_usdt;
