//! What the tests, the demo and the benches share: real programs to attach to, the interpreters of this
//! machine, the built loader, and the way a test says that it could not run.
//!
//! Nothing here is part of the product, and nothing here judges a result, but for the one rule of how exact a
//! delay has to be ([`exact`]).

pub mod agent;
pub mod browser;
pub mod everybody;
pub mod exact;
pub mod fixture;
pub mod lines;
pub mod matrix;
pub mod places;
pub mod priority;
pub mod pythons;
pub mod service;
pub mod session;
pub mod side_by_side;
pub mod skip;
pub mod text;
pub mod tool;
pub mod uwsgi;
pub mod wait;

pub use agent::Agent;
pub use fixture::Fixture;
pub use lines::Lines;
pub use pythons::{PythonBuild, pythons};
pub use service::Service;
pub use session::Attached;
