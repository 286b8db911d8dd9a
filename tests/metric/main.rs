//! What is measured of services: beside what their clients count themselves.

mod sockets;
