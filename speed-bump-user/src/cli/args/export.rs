//! Flags for numbers that others read while something runs.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use crate::exporter::address;

/// Where numbers go.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Serve what is counted at /metrics of this address, for Prometheus; a port alone is one of the loopback
    /// address, and 0 one that is free
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address::parse)]
    pub prometheus: Option<SocketAddr>,

    /// Write it to this file every two seconds, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    pub prometheus_file: Option<PathBuf>,
}
