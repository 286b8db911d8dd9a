//! Loads the helper into a process to list its functions, and unloads it again.

use std::time::Duration;

use super::notice::Notice;
use crate::{
    presence::{
        HelperSetup,
        survey::{Survey, loaded, survey},
    },
    probe::{
        plan::{Plan, PlannedFunction, PythonPlan, SelectedFunction},
        resolve::Resolver,
    },
    process::{Process, ProcessError},
    python::{entry_source::EntrySource, helper::FoundFunction},
    targets::{TargetIndex, TargetKind},
};

/// A process, with the functions that targets select in it.
pub(super) struct Planned {
    pub(super) process: Process,
    pub(super) plan: Plan,
    /// What targets that select nothing could have meant: file and qualified name of functions. Empty if
    /// nobody requested a list.
    pub(super) loaded: Vec<(String, String)>,
    /// The callers that targets name and that the helper has found, as bits. `None` if we did not list
    /// functions.
    pub(super) callers_found: Option<u64>,
    /// Why the process may have more Python functions than we found.
    pub(super) unlisted: Vec<&'static str>,
}

impl Planned {
    pub(super) fn new(process: Process, plan: Plan) -> Self {
        Self { process, plan, loaded: Vec::new(), callers_found: None, unlisted: Vec::new() }
    }

    /// The callers that were found, as bits, of targets of this kind; `None` if no functions were listed.
    pub(super) fn callers_found(&self, kind: TargetKind) -> Option<u64> {
        match kind {
            TargetKind::Python => self.callers_found,
            TargetKind::Native => self.plan.callers.as_ref().map(|callers| callers.found.into()),
            TargetKind::Usdt => None,
        }
    }

    /// Loads the helper, and adds its functions to the plan. If a target selects nothing, also collects the
    /// names of other functions.
    pub(super) fn look_inside(
        &mut self,
        inject_timeout: Duration,
        resolver: &Resolver,
    ) -> Result<Vec<Notice>, ProcessError> {
        let Self { process, plan, loaded: names, callers_found: callers, unlisted: may_be_missing } = self;
        let pid = process.pid();
        let program = plan.program.clone().map_or_else(|| process.program(), Ok)?;
        let interpreters = resolver.interpreter_files(process)?;
        let looked = HelperSetup::new(resolver, inject_timeout)
            .and_then(|setup| Ok((survey(process, &program, &interpreters, &setup)?, setup)));
        let (found, setup) = match looked {
            Ok(looked) => looked,
            Err(error) => {
                let why = match error.into_other_program() {
                    Ok(error) => return Err(error),
                    Err(error) => error.to_string(),
                };
                plan.python = PythonPlan::NotAsked;
                plan.add(resolver.plan_without_helper(process, &why)?);
                return Ok(vec![Notice::NotLooked { pid, why }]);
            }
        };
        let Survey { functions, looked_at, callers_found, unlisted, notices: seen } = found;
        *callers = Some(callers_found);
        let mut notices = vec![Notice::Looked { pid, functions: looked_at }];
        notices
            .extend(seen.into_iter().chain(unlisted.iter().copied()).map(|text| Notice::Seen { pid, text }));
        *may_be_missing = unlisted;
        let mut functions: Vec<_> =
            functions.into_iter().filter_map(|function| as_planned(function, resolver)).collect();
        functions.sort_by(|a, b| a.selected.cmp(&b.selected));
        // New functions come last, because sites name functions by position.
        plan.functions.extend(functions);
        let mut python = resolver.targets().iter().filter(|(_, target)| target.kind == TargetKind::Python);
        if python.any(|(index, _)| !plan.would_select(index))
            || !resolver.targets().without_caller(TargetKind::Python, callers_found).is_empty()
        {
            // Without names, we still tell the user that a target selects nothing.
            *names = loaded(process, &program, &interpreters, &setup).unwrap_or_default();
        }
        Ok(notices)
    }
}

/// We check the helper's answer: it comes from the target process, which could write anything.
fn as_planned(function: FoundFunction, resolver: &Resolver) -> Option<PlannedFunction> {
    let target = TargetIndex(function.target);
    resolver.targets().get(target).filter(|target| target.kind == TargetKind::Python)?;
    let selection = resolver.targets().python_in(&function.file).select(&function.name);
    Some(PlannedFunction {
        selected: SelectedFunction {
            target,
            name: function.name,
            file: function.file.into(),
            line: Some(function.line).filter(|line| line.cast_signed() > 0),
        },
        aliases: Vec::new(),
        symbols: Vec::new(),
        entry: EntrySource::Helper.into(),
        shadowed: selection.shadowed,
    })
}
