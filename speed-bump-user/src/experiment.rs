//! Experiments: how a service's throughput answers to delays.

pub mod metric;
