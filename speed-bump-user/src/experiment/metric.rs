//! What is measured of a service while an experiment goes on.

pub mod sockets;
