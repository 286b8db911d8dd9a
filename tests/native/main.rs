//! Native functions and USDT probes: what is selected, where the probe goes, and exact counts.

mod go_programs;
mod kept_costs;
mod native_builds;
mod native_callers;
mod native_functions;
mod native_times;
mod pasted_names;
mod session_usdt;
mod site_corpus;
