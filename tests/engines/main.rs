//! The engines other than the usual one: `signal`, `kmod`, and what is left of `bpf` on old kernels.

mod by_caller;
mod helper_alone;
mod helper_callers;
mod helper_engine;
mod helper_times;
mod inexact;
mod kernel_module;
mod kmod;
mod kmod_engine;
mod kmod_refusals;
mod old_kernel;
mod signal_engine;
mod sub_interpreters;
