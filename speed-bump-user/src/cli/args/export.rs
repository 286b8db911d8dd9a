//! Flags for numbers that other programs read during a session.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use crate::exporter::address;

/// Where the numbers go.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Serve counters at /metrics of this address, for Prometheus. A port alone means the loopback address;
    /// port 0 means any free port
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address::parse)]
    pub prometheus: Option<SocketAddr>,

    /// Write the same to this file every two seconds, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    pub prometheus_file: Option<PathBuf>,
}
