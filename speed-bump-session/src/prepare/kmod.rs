//! A plan for the kernel module.

use std::{path::Path, sync::Arc};

use super::{
    PrepareError, Purpose, Request,
    notice::{Notice, Reason, SelectsNothing},
    unselected::of_files,
};
use crate::{
    bounds::TARGETS_EXPLAINED,
    engine::kmod::{FOLDER, KmodError, Module, RECORDS, Records, TARGETS, UPSTREAM, recover},
    probe::resolve::{
        nearest,
        symbols::{NamedFunctions, SymbolResolver},
    },
    process::Process,
    session::{
        SessionError, Settings,
        handle::Handle,
        kmod::{KmodSession, KmodStart, guard, names},
        stop::Stop,
    },
    targets::Targets,
};

/// A process, with the functions that targets select in it.
pub struct KmodPlan {
    /// `None` if we cannot use the module and do not need it (when listing).
    module: Option<(Module, Records)>,
    resolver: SymbolResolver,
    process: Process,
    found: NamedFunctions,
    /// Notices about the module, for the report.
    told: Vec<String>,
}

impl KmodPlan {
    /// Resolves the targets, and checks that the module can delay what they select.
    pub(super) fn prepare(
        process: Process,
        request: &Request,
        targets: &Arc<Targets>,
        purpose: Purpose,
    ) -> Result<(Self, Vec<Notice>), PrepareError> {
        let resolver = SymbolResolver::new(Arc::clone(targets));
        let found = resolver.resolve(&process)?;
        let mut notices = Vec::new();
        let module = match (module(request, &process, &found, &mut notices), purpose) {
            (Ok(module), _) => Some(module),
            (Err(error), Purpose::Attach) => return Err(error.into()),
            (Err(error), Purpose::List) => {
                notices.push(Notice::AttachWouldFail { why: error.to_string() });
                None
            }
        };
        let told = notices.iter().filter_map(|notice| match notice {
            Notice::Recovered { text } => Some(text.clone()),
            Notice::UpstreamModule => Some(UPSTREAM.to_owned()),
            _ => None,
        });
        let told = told.collect();
        notices.extend(unselected(request.strict, &resolver, &process, &found)?);
        Ok((Self { module, resolver, process, found, told }, notices))
    }

    pub(super) fn start(self, settings: Settings, stop: Stop) -> Result<Handle, SessionError> {
        let Self { module, resolver, process, found, told } = self;
        let (module, records) = module.ok_or_else(|| KmodError::Absent { folder: FOLDER.into() })?;
        let start = KmodStart { module, records, resolver, process, found, told };
        Handle::start(move |stop| KmodSession::start(start, &settings, stop), stop)
    }

    /// The process to delay: the kernel module takes only one.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The notices about the module, for the report.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The functions that targets select in the process.
    pub fn found(&self) -> &NamedFunctions {
        &self.found
    }
}

/// Opens the module, if we can use it here. Before that, removes the targets that killed tools have left in
/// it.
fn module(
    request: &Request,
    process: &Process,
    found: &NamedFunctions,
    notices: &mut Vec<Notice>,
) -> Result<(Module, Records), KmodError> {
    let folder = Path::new(FOLDER);
    let module =
        if request.accept_upstream_module { Module::open_any(folder) } else { Module::open(folder) }?;
    let records = Records::open(Path::new(RECORDS))?;
    notices.extend(recover(&module, &records)?.into_iter().map(|text| Notice::Recovered { text }));
    let wanted = names(&found.functions, guard(&module, process)?.as_mut())?.len();
    if wanted > TARGETS {
        return Err(KmodError::TooMany { wanted, others: module.listing()?.targets.len() });
    }
    if module.is_upstream() {
        notices.push(Notice::UpstreamModule);
    }
    Ok((module, records))
}

/// A notice for each target that selects nothing. With `strict` this is an error instead.
fn unselected(
    strict: bool,
    resolver: &SymbolResolver,
    process: &Process,
    found: &NamedFunctions,
) -> Result<Vec<Notice>, PrepareError> {
    let (targets, mut nothing) = (resolver.targets(), Vec::new());
    for (index, target) in targets.iter() {
        if found.functions.iter().any(|function| function.selected.target == index) {
            continue;
        }
        let remarks = found.remarks.iter().filter(|remark| remark.target == Some(index));
        let mut reasons: Vec<_> = remarks.take(3).map(|remark| Reason::Found(remark.text.clone())).collect();
        if reasons.is_empty() && nothing.len() < TARGETS_EXPLAINED {
            reasons = of_files(target, process);
            let near = nearest(targets, process, index, &[], resolver.effort());
            reasons.extend((!near.is_empty()).then_some(Reason::Nearest(near)));
        }
        nothing.push(SelectsNothing {
            line: target.line,
            target: target.text.clone(),
            processes: vec![(process.pid(), reasons)],
        });
    }
    if strict && !nothing.is_empty() {
        return Err(PrepareError::NothingSelected(nothing));
    }
    Ok(nothing.into_iter().map(Notice::SelectsNothing).collect())
}
