//! Python functions.
use super::Resolver;
use crate::{probe::plan::Plan, process::{Mappings, Process, ProcessError}};
impl Resolver {
    pub(super) fn plan_python(&self, _process: &Process, _mappings: &Mappings, _plan: &mut Plan) -> Result<(), ProcessError> { Ok(()) }
}
