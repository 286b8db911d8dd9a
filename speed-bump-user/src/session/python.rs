//! Python functions that appear while the session runs.
use std::collections::HashMap;
use speed_bump_abi::PythonKey;
use crate::{engine::bpf::BpfEngine, probe::plan::Plan, process::Process, session::Session, units::Pid};
/// x
#[derive(Debug)]
pub enum PythonFollower {
    /// x
    Usdt,
}
impl PythonFollower {
    pub(super) fn new(_process: &Process, _plan: &Plan) -> Option<Self> { None }
    pub(super) fn in_child(&self, _child: &Process) -> Self { Self::Usdt }
}
/// x
#[derive(Debug, Default)]
pub struct Locations;
impl Locations {
    pub(super) fn pending_calls(&self, _engine: &BpfEngine) -> HashMap<u32, u64> { HashMap::new() }
}
impl Session {
    pub(super) fn poll_python_of(&mut self, _pid: Pid) {}
    pub(super) fn python_code(&mut self, _index: u32, _key: &PythonKey) {}
    pub(super) fn tick(&mut self) {}
}
