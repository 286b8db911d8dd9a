//! Plans the Python functions of a process. Finds the process's interpreter, its entry source, the site of
//! the probe, and the functions that we can list before the attach.

use std::{collections::HashSet, io, sync::Arc};

use speed_bump_abi::ArgumentSpec;

use super::{FileError, INTERPRETERS_KNOWN, Resolver, elf_of, probe_file, usdt::usdt_sites};
use crate::{
    bounds::Budget,
    engine::bpf::{Form, UprobeProgram},
    probe::{
        code::CodeFile,
        file::ProbeFile,
        plan::{Plan, PlannedFunction, PlannedSite, PythonPlan, Remark, SelectedFunction, Timing},
        site::{self, FunctionCode},
    },
    process::{MappedFile, Mappings, Process, ProcessError, mapped_file::FileIdentity},
    python::{
        entry_source::{self, EntryChoice, EntrySource, Facts, Injection, NoEntries},
        interpreter::{self, Interpreter},
        perf_map::{FOLLOWED, PerfMapEntry, PerfMapFollower},
        root::ProcessRoot,
    },
    targets::{Target, TargetKind},
};

/// The message if we found no interpreter. One of the unreadable files may be the interpreter.
fn no_python(unread: &[String]) -> String {
    match unread {
        [] => "it runs no CPython: no mapped file defines _PyEval_EvalFrameDefault".to_owned(),
        [first, more @ ..] => format!(
            "no CPython is seen in it: no mapped file that can be read defines _PyEval_EvalFrameDefault, and \
             {} cannot be read: {first}",
            more.len() + 1
        ),
    }
}

impl Resolver {
    /// Adds what the Python targets select.
    pub(super) fn plan_python(
        &self,
        process: &Process,
        mappings: &Mappings,
        injection: Injection<'_>,
        of_relatives: Option<EntrySource>,
        plan: &mut Plan,
    ) -> Result<(), ProcessError> {
        let mut unread = Vec::new();
        let interpreters = self.interpreters(process, mappings, plan, &mut unread);
        if interpreters.is_empty() {
            plan.python = PythonPlan::Impossible(no_python(&unread));
            return Ok(());
        }
        let listed = match perf_map_of(process, &list_room()).map(|mut map| {
            let listed = map.list(|| anonymous(process));
            (listed, map)
        }) {
            Ok((Ok(entries), map)) => {
                if map.has_left_out() {
                    plan.remarks.push(Remark { target: None, text: left_out(&map) });
                }
                entries
            }
            Ok((Err(error), _)) => {
                plan.remarks.push(Remark { target: None, text: error.to_string() });
                Vec::new()
            }
            Err(error) => {
                let text = format!("the process's perf map cannot be looked for: {error}");
                plan.remarks.push(Remark { target: None, text });
                Vec::new()
            }
        };
        plan.python = PythonPlan::NotAsked;
        for (file, interpreter) in &interpreters {
            if plan.wants_helper() {
                break; // one helper serves a process, and it finds the first interpreter
            }
            let facts = facts(interpreter, injection, !listed.is_empty(), self.form());
            let planned =
                self.entry_source(&facts, of_relatives).map_err(|why| why.to_string()).and_then(|source| {
                    self.check_callers(source)?;
                    let sites = self.python_sites(process, source, file, interpreter)?;
                    Ok((source, sites))
                });
            match planned {
                Ok((source, sites)) => {
                    plan.sites.extend(sites);
                    let stub = (source == EntrySource::Helper).then(|| self.stub());
                    plan.python = PythonPlan::Source { source, version: interpreter.version, stub };
                }
                Err(why) if matches!(plan.python, PythonPlan::NotAsked) => {
                    plan.python = PythonPlan::Impossible(why);
                }
                Err(why) => plan.remarks.push(Remark { target: None, text: why }),
            }
        }
        match plan.python {
            PythonPlan::Source { source: EntrySource::PerfMap, .. } => self.list(&listed, plan),
            PythonPlan::Source { source: EntrySource::Usdt, .. } => self.remark_on_python(
                plan,
                "which functions it selects is known when they are called: the probe gives file, co_name and \
                 line; the qualified name comes from the source file; if that cannot be read, the last \
                 component of the pattern is compared with co_name",
            ),
            PythonPlan::Source { source: EntrySource::Helper, .. }
            | PythonPlan::NotAsked
            | PythonPlan::Impossible(_) => {}
        }
        Ok(())
    }

    fn remark_on_python(&self, plan: &mut Plan, text: &str) {
        for (index, _) in self.targets.iter().filter(|(_, target)| target.kind == TargetKind::Python) {
            plan.remarks.push(Remark { target: Some(index), text: text.to_owned() });
        }
    }

    /// Refuses a source that does not show callers, if targets only select calls from some functions.
    fn check_callers(&self, source: EntrySource) -> Result<(), String> {
        let is_for_callers = |target: &Target| {
            target.kind == TargetKind::Python && target.caller.is_some() && !target.is_dropped
        };
        let first = self.targets.iter().map(|(_, target)| target).find(|target| is_for_callers(target));
        match first {
            Some(target) if source != EntrySource::Helper => Err(format!(
                "line {}: `{}`: only the helper sees which function calls another one (`caller=`), and calls \
                 here would be seen by `{source}`: let the helper in (without --no-inject and --entry), or \
                 leave `caller=` out",
                target.line, target.text
            )),
            _ => Ok(()),
        }
    }

    /// The requested source, or the best one available. A requested source may become available later,
    /// because a running process can switch trampolines on.
    fn entry_source(
        &self,
        facts: &Facts<'_>,
        of_relatives: Option<EntrySource>,
    ) -> Result<EntrySource, NoEntries> {
        let EntryChoice::Only(asked) = self.entry else {
            return entry_source::choose(facts).or_else(|why| match of_relatives {
                Some(EntrySource::PerfMap) if why.may_get_trampolines() => Ok(EntrySource::PerfMap),
                _ => Err(why),
            });
        };
        match entry_source::check(asked, facts) {
            Ok(()) | Err(NoEntries::NoTrampolines { .. }) => Ok(asked),
            Err(why) => Err(why),
        }
    }

    /// The mapped files that contain an interpreter.
    ///
    /// # Errors
    /// We cannot inspect the process.
    pub fn interpreter_files(&self, process: &Process) -> Result<Vec<FileIdentity>, ProcessError> {
        let mappings = process.mappings()?;
        let found = self.interpreters(process, &mappings, &mut Plan::empty(), &mut Vec::new());
        let ids: Vec<_> = found.iter().map(|(file, _)| file.id()).collect();
        let is_one =
            |mapped: &&MappedFile| probe_file(process, mapped).is_ok_and(|file| ids.contains(&file.id()));
        Ok(mappings.files.iter().filter(is_one).map(|mapped| mapped.identity).collect())
    }

    /// The interpreters in the mapped files. Adds to `unread` why we could not read other files.
    fn interpreters(
        &self,
        process: &Process,
        mappings: &Mappings,
        plan: &mut Plan,
        unread: &mut Vec<String>,
    ) -> Vec<(Arc<ProbeFile>, Interpreter)> {
        let mut found = Vec::new();
        for mapped in &mappings.files {
            let file = match probe_file(process, mapped) {
                Ok(file) => file,
                Err(error) => {
                    if error.is_out_of_reach() {
                        plan.remarks.push(Remark { target: None, text: error.to_string() });
                    }
                    unread.push(error.to_string());
                    continue;
                }
            };
            let known = self.interpreters.borrow().get(&file.id()).cloned();
            let identify = || {
                let read = self.effort.read(|| interpreter::identify(file.file(), file.path()));
                read.map_err(|why| why.to_string())?.map_err(|error| error.to_string())
            };
            let identified = known.map_or_else(identify, Ok);
            match identified {
                Ok(interpreter) => {
                    let mut known = self.interpreters.borrow_mut();
                    if known.len() == INTERPRETERS_KNOWN {
                        known.clear();
                    }
                    known.insert(file.id(), interpreter.clone());
                    found.extend(interpreter.map(|interpreter| (Arc::new(file), interpreter)));
                }
                Err(error) => {
                    let text = format!("{}: {error}", file.path().display());
                    unread.push(text.clone());
                    plan.remarks.push(Remark { target: None, text });
                }
            }
        }
        found
    }

    /// The sites for the probes of an entry source.
    fn python_sites(
        &self,
        process: &Process,
        source: EntrySource,
        file: &Arc<ProbeFile>,
        interpreter: &Interpreter,
    ) -> Result<Vec<PlannedSite>, String> {
        let sites = match source {
            // We know the sites only when the helper is loaded.
            EntrySource::Helper => Ok(Vec::new()),
            EntrySource::PerfMap => {
                let shadow_stack = process.status().map_err(|error| error.to_string())?.shadow_stack;
                self.evaluator_site(file, interpreter, shadow_stack).map(|site| vec![site])
            }
            EntrySource::Usdt => function_entry_sites(file),
        };
        sites.map_err(|error| format!("{}: {error}", file.path().display()))
    }

    /// The cheapest site in the evaluator among the sites where we know the place of the return address.
    fn evaluator_site(
        &self,
        file: &Arc<ProbeFile>,
        interpreter: &Interpreter,
        shadow_stack: bool,
    ) -> Result<PlannedSite, FileError> {
        let refuse = |text: String| FileError::Io(io::Error::other(text));
        let evaluator =
            interpreter.evaluator.ok_or_else(|| refuse("it has no _PyEval_EvalFrameDefault".to_owned()))?;
        let code_file = CodeFile::new(elf_of(file)?);
        let code = code_file.code()?;
        let function =
            FunctionCode { map: &code, entry: evaluator.address, size: Some(evaluator.size), shadow_stack };
        let mut analysis = site::analyse(&function).map_err(|error| refuse(error.to_string()))?;
        drop(code);
        code_file.check()?;
        analysis.candidates.retain(|candidate| candidate.stack_delta.is_some());
        let site = analysis
            .choose(&|kind| self.calibration().price(kind))
            .map_err(|error| refuse(error.to_string()))?;
        if let Some(why) = self.deadly(site.kind) {
            return Err(refuse(why));
        }
        let offset = elf_of(file)?
            .segments()
            .code_offset_of(site.address)
            .ok_or_else(|| refuse("its evaluator is not in the file".to_owned()))?;
        Ok(PlannedSite {
            timing: Timing::NotAsked,
            file: Arc::clone(file),
            offset,
            semaphore: None,
            function: None,
            program: UprobeProgram::Trampoline,
            caller: None,
            kind: site.kind,
            instruction: site.instruction,
            stack_delta: site.stack_delta.unwrap_or(0),
            arguments: [ArgumentSpec::default(); 3],
            remark: Some(site.reason),
        })
    }

    /// Adds the functions of a perf map that a target selects.
    fn list(&self, entries: &[PerfMapEntry], plan: &mut Plan) {
        let mut listed: HashSet<SelectedFunction> =
            plan.functions.iter().map(|function| function.selected.clone()).collect();
        for entry in entries {
            let selection = self.targets.python_in(&entry.filename).select(&entry.qualname);
            let Some(target) = self.targets.for_all_callers(&selection) else { continue };
            let selected = SelectedFunction {
                target,
                name: entry.qualname.clone(),
                file: entry.filename.clone().into(),
                line: None,
            };
            // Several code objects can have one name: closures, reloaded modules.
            if !listed.insert(selected.clone()) {
                continue;
            }
            let function = PlannedFunction {
                selected,
                aliases: Vec::new(),
                symbols: Vec::new(),
                entry: EntrySource::PerfMap.into(),
                shadowed: selection.shadowed,
            };
            if !plan.take_room(function.bytes(&[])) {
                let text =
                    "the targets select more functions of the perf map than there is room for; narrow them";
                plan.remarks.push(Remark { target: Some(target), text: text.to_owned() });
                return;
            }
            plan.functions.push(function);
        }
    }
}

/// The facts that decide how an interpreter's calls become visible. `form` is the form of the BPF programs.
pub fn facts<'a>(
    interpreter: &Interpreter,
    injection: Injection<'a>,
    has_trampolines: bool,
    form: Form,
) -> Facts<'a> {
    Facts {
        injection,
        version: interpreter.version,
        has_trampolines,
        has_function_entry: interpreter.has_function_entry,
        has_jit: interpreter.has_jit,
        kernel_tells: form.has_python_programs(),
    }
}

/// Room for a perf map that we list and do not follow.
pub fn list_room() -> Budget {
    Budget::new(FOLLOWED)
}

/// The remark that we use only a part of a perf map.
pub fn left_out(map: &PerfMapFollower) -> String {
    format!(
        "{} lists more than is taken up, or is written faster than it can be read: some functions are left \
         out",
        map.path().display()
    )
}

/// Follows a process's perf map. `room` is shared with the other followers of a session.
///
/// # Errors
/// We cannot inspect the process.
pub fn perf_map_of(process: &Process, room: &Budget) -> io::Result<PerfMapFollower> {
    let root = ProcessRoot::of_process(process.shown_by())?;
    let status = process.status().map_err(io::Error::other)?;
    let pid = process.namespace_pid().map_err(io::Error::other)?;
    Ok(PerfMapFollower::new(root, pid.get(), &status.credentials.users, room))
}

/// The memory that can contain trampolines.
///
/// # Errors
/// The mappings cannot be read.
pub fn anonymous(process: &Process) -> io::Result<Vec<std::ops::Range<crate::units::VirtualAddress>>> {
    let mappings = process.mappings().map_err(io::Error::other)?;
    let own = mappings.anonymous.iter().filter(|mapping| !mapping.is_the_kernels());
    Ok(own.map(|mapping| mapping.start..mapping.end).collect())
}

/// The sites of `python:function__entry`.
fn function_entry_sites(file: &Arc<ProbeFile>) -> Result<Vec<PlannedSite>, FileError> {
    let probes = elf_of(file)?.usdt_probes()?;
    let code_file = CodeFile::new(elf_of(file)?);
    let code = code_file.code()?;
    let entry =
        probes.probes.iter().find(|probe| probe.provider == "python" && probe.name == "function__entry");
    let (sites, refused) =
        entry.map(|probe| usdt_sites(file, &code, probe, UprobeProgram::PythonUsdt)).unwrap_or_default();
    drop(code);
    code_file.check()?;
    if sites.is_empty() {
        let why = refused.first().map_or("it has no probe python:function__entry", String::as_str);
        return Err(FileError::Io(io::Error::other(why.to_owned())));
    }
    Ok(sites)
}
