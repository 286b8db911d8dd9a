//! CPython: interpreters, perf maps, and source files.
