//! Selects the native functions and USDT probes of one file.

use std::{path::PathBuf, sync::Arc};

use speed_bump_abi::ArgumentSpec;

use super::{
    FileError, Resolver, elf_of, hugify, indirect, moved, stepped::Neighbours, timing, usdt::usdt_sites,
};
use crate::{
    bounds::PLAN_BYTES,
    elf::{Effort, ElfFile, FunctionSymbol, Functions, IndirectFunction, Named, Segments, TableKind},
    engine::bpf::UprobeProgram,
    probe::{
        code::CodeFile,
        file::ProbeFile,
        plan::{Entry, Plan, PlannedFunction, PlannedSite, Remark, SelectedFunction, Timing},
        site::{self, CodeMap, Exactness, FunctionCode, SiteKind},
    },
    process::{MappedFile, Mappings, Process},
    targets::{NativeModule, Selection, TargetIndex, UsdtModule},
};

/// How many refused symbols of a file we report for a target.
const REFUSED_TOLD: usize = 5;
/// The most IFUNCs of a file that we report. For each IFUNC we search the relocations of all files. C
/// libraries have a hundred IFUNCs.
const INDIRECT_LIMIT: usize = 1_024;
/// The most single-stepped functions of a file for which we search a cheaper neighbour. Each search takes
/// milliseconds in a large file.
const ADVISED_LIMIT: usize = 32;

/// What the targets select in one file. The selection is the same in every process that maps the file.
#[derive(Debug)]
pub(super) struct FileSelection {
    elf: ElfFile,
    path: PathBuf,
    selected: Vec<(PlannedFunction, Vec<PlannedSite>)>,
    indirect: Vec<(TargetIndex, IndirectFunction)>,
    remarks: Vec<Remark>,
    /// An estimate of the memory that functions, sites and remarks take, in bytes.
    bytes: usize,
    /// The number of functions and remarks that we left out for lack of room.
    left_out: usize,
    /// The number of functions for which we searched neighbours.
    advised: usize,
    /// Whether a symbol shows that the program moves its code when it starts.
    pub(super) hugifies: bool,
}

/// The state while we select in a file.
struct Selecting<'a> {
    resolver: &'a Resolver,
    file: &'a Arc<ProbeFile>,
    code: CodeMap<'a>,
    shadow_stack: bool,
}

impl FileSelection {
    /// Finds what the targets select in a file.
    pub(super) fn new(
        resolver: &Resolver,
        process: &Process,
        file: &Arc<ProbeFile>,
        shadow_stack: bool,
    ) -> Result<Self, FileError> {
        let elf = elf_of(file)?;
        let path = file.path().to_owned();
        let name = path.to_string_lossy().into_owned();
        let mut selection = Self {
            elf,
            path,
            selected: Vec::new(),
            indirect: Vec::new(),
            remarks: Vec::new(),
            bytes: 0,
            left_out: 0,
            advised: 0,
            hugifies: false,
        };
        let code_file = CodeFile::new(elf_of(file)?);
        let native = resolver.targets.native_in(&name);
        let usdt = resolver.targets.usdt_in(&name);
        let selecting = Selecting { resolver, file, code: code_file.code()?, shadow_stack };
        if !native.is_empty() {
            selection.add_native(&selecting, process, &native)?;
        }
        if !usdt.is_empty() {
            selection.add_usdt(&selecting, &usdt)?;
        }
        code_file.check()?;
        selection.tell_left_out(resolver);
        Ok(selection)
    }

    /// An estimate of the memory that the selection takes in a plan, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes room in [`PLAN_BYTES`]. If too little is left, counts the item as left out.
    fn take_room(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= PLAN_BYTES / 2;
        if fits {
            self.bytes += bytes;
        } else {
            self.left_out += 1;
        }
        fits
    }

    fn tell_left_out(&mut self, resolver: &Resolver) {
        if self.left_out == 0 {
            return;
        }
        let path = self.path.display();
        let text = format!(
            "{} functions in {path}, or remarks on them, are left out: the targets select too much of it; \
             narrow them",
            self.left_out
        );
        let name = self.path.to_string_lossy().into_owned();
        let targets = resolver.native_targets_of(&name);
        self.remarks.extend(targets.map(|target| Remark { target: Some(target), text: text.clone() }));
    }

    /// The selected functions, with their sites.
    pub(super) fn selected(&self) -> impl Iterator<Item = (&PlannedFunction, &[PlannedSite])> {
        self.selected.iter().map(|(function, sites)| (function, sites.as_slice()))
    }

    /// The segments of the file.
    pub(super) fn segments(&self) -> &Segments {
        self.elf.segments()
    }

    /// Adds to a plan the functions whose code the process runs from the file, and the file's remarks.
    pub(super) fn add_to(&self, plan: &mut Plan, mapped: &MappedFile) {
        for (function, sites) in self.selected().filter(|(_, sites)| moved::is_run(mapped, sites)) {
            let position = plan.functions.len();
            plan.functions.push(function.clone());
            let of_function = |site: &PlannedSite| PlannedSite { function: Some(position), ..site.clone() };
            plan.sites.extend(sites.iter().map(of_function));
        }
        plan.remarks.extend(self.remarks.iter().cloned());
    }

    /// Adds a remark for each selected IFUNC: the function that it resolved to in this process.
    pub(super) fn add_indirect(
        &self,
        process: &Process,
        mappings: &Mappings,
        effort: &Effort,
        plan: &mut Plan,
    ) {
        for (target, text) in
            indirect::explain(&self.elf, &self.path, &self.indirect, process, mappings, effort)
        {
            plan.remarks.push(Remark { target: Some(target), text });
        }
    }

    fn add_native(
        &mut self,
        selecting: &Selecting<'_>,
        process: &Process,
        matcher: &NativeModule<'_>,
    ) -> Result<(), FileError> {
        let resolver = selecting.resolver;
        let file = selecting.file.file();
        let functions = resolver.known.functions(&self.elf, file, &self.path, process, resolver.effort())?;
        let mut names = functions.functions().iter().flat_map(|function| function.names.iter());
        self.hugifies = names.any(|name| hugify::says_so(name.as_str()));
        let path = self.path.display().to_string();
        let mut refused_told = 0;
        let forms = matcher.forms();
        let named = functions.named_where(|name| forms.may_matter(name));
        let named = named.take_while(|_| resolver.effort().goes_on().is_ok());
        for (symbol, selection) in matcher.select_all(named) {
            let Some(target) = selection.winner else { continue };
            match symbol {
                Named::Function(function) => {
                    self.add_function(selecting, &functions, function, &selection);
                }
                Named::Indirect(_) if self.indirect.len() == INDIRECT_LIMIT => self.left_out += 1,
                Named::Indirect(function) => self.indirect.push((target, function.clone())),
                Named::Refused(_) if refused_told == REFUSED_TOLD => {}
                Named::Refused(refused) => {
                    refused_told += 1;
                    let (name, why) = (refused.name.as_str(), refused.refusal);
                    self.remark(target, format!("{name} in {path} is not probed: {why}"));
                }
            }
        }
        if functions.tables().iter().all(|table| *table == TableKind::Dynamic) {
            let selects = |target| {
                self.selected.iter().any(|(function, _)| function.selected.target == target)
                    || self.indirect.iter().any(|(of, _)| *of == target)
            };
            let nothing = selecting.resolver.native_targets_of(&path).filter(|target| !selects(*target));
            for target in nothing.collect::<Vec<_>>() {
                self.remark(
                    target,
                    format!(
                        "{path} is stripped, and no debug file was found: only functions that it exports \
                         have names"
                    ),
                );
            }
        }
        for warning in functions.warnings() {
            for target in selecting.resolver.native_targets_of(&path).collect::<Vec<_>>() {
                self.remark(target, warning.clone());
            }
        }
        Ok(())
    }

    /// Adds a function, for each of its targets.
    fn add_function(
        &mut self,
        selecting: &Selecting<'_>,
        functions: &Functions,
        function: &FunctionSymbol,
        selection: &Selection,
    ) {
        let Some(target) = selection.winner else { return };
        let resolver = selecting.resolver;
        let by_callers = resolver.callers.number(target) > 0;
        let name = function.names.canonical().as_str().to_owned();
        let code = FunctionCode {
            map: &selecting.code,
            entry: function.address,
            size: Some(function.size),
            shadow_stack: selecting.shadow_stack,
        };
        let cost = |kind| resolver.calibration().price(kind);
        let choose = if by_callers { site::choose_with_return_address } else { site::choose };
        let chosen = choose(&code, &cost).map_err(|refusal| refusal.to_string()).and_then(|site| {
            if let Some(why) = resolver.deadly(site.kind) {
                return Err(why);
            }
            let offset = self.elf.segments().code_offset_of(site.address);
            offset.map(|offset| (site, offset)).ok_or_else(|| "its code is not in the file".to_owned())
        });
        let (site, offset) = match chosen {
            Ok(chosen) => chosen,
            Err(why) => {
                let path = self.path.display();
                return self.remark(target, format!("{name} in {path} is not probed: {why}"));
            }
        };
        let timing = timing::plan(resolver, &self.elf, &code, &site);
        let mut aliases: Vec<String> = function
            .names
            .candidates()
            .map(|name| name.into_owned())
            .filter(|alias| *alias != name)
            .collect();
        aliases.sort_unstable();
        aliases.dedup();
        let planned = PlannedFunction {
            selected: SelectedFunction { target, name, file: self.path.clone(), line: None },
            aliases,
            symbols: function.names.iter().skip(1).map(|of| of.as_str().to_owned()).collect(),
            entry: Entry::Symbol,
            shadowed: selection.shadowed.clone(),
        };
        let mut remark = site.reason;
        if site.exactness == Exactness::Unproven {
            remark.push_str("; it is not proven that each call passes here once");
        }
        if site.kind == SiteKind::SingleStep && self.advised < ADVISED_LIMIT {
            self.advised += 1;
            if let Some(advice) = (Neighbours { functions, cost: &cost }).advice(function, &code) {
                remark = format!("{remark}; {advice}");
            }
        }
        if let Timing::Impossible(why) = &timing {
            remark = format!("{remark}; calls are not timed: {why}");
        }
        let site = PlannedSite {
            file: Arc::clone(selecting.file),
            offset,
            semaphore: None,
            function: None,
            program: match (&timing, by_callers) {
                (Timing::NotAsked, false) => UprobeProgram::Site,
                (Timing::NotAsked, true) => UprobeProgram::SiteCallers,
                (Timing::Exits(_) | Timing::Impossible(_), false) => UprobeProgram::SiteTimed,
                (Timing::Exits(_) | Timing::Impossible(_), true) => UprobeProgram::SiteCallersTimed,
            },
            caller: None,
            kind: site.kind,
            instruction: site.instruction,
            stack_delta: site.stack_delta.unwrap_or(0),
            arguments: [ArgumentSpec::default(); 3],
            remark: Some(remark),
            timing,
        };
        if !by_callers {
            return self.add_selected(planned, site);
        }
        let targets = || std::iter::once(target).chain(selection.for_other_callers.iter().copied());
        // Later lines come too late for the one that is for all callers, or else for one with their caller.
        let before_late = targets().last().filter(|last| resolver.callers.number(*last) == 0);
        for target in targets() {
            let mut planned = planned.clone();
            planned.selected.target = target;
            if before_late.is_some_and(|before| before != target) {
                planned.shadowed.clear();
            }
            let caller = Some(resolver.callers.number(target));
            self.add_selected(planned, PlannedSite { caller, ..site.clone() });
        }
    }

    fn add_selected(&mut self, function: PlannedFunction, site: PlannedSite) {
        let sites = vec![site];
        if self.take_room(function.bytes(&sites)) {
            self.selected.push((function, sites));
        }
    }

    fn add_usdt(&mut self, selecting: &Selecting<'_>, matcher: &UsdtModule<'_>) -> Result<(), FileError> {
        let probes = self.elf.usdt_probes()?;
        let path = self.path.display().to_string();
        for refused in &probes.refused {
            let (provider, name, reason) = (&refused.provider, &refused.name, &refused.reason);
            if let Some(target) = matcher.select(provider, name).winner {
                self.remark(
                    target,
                    format!("a location of {provider}:{name} in {path} is not probed: {reason}"),
                );
            }
        }
        for probe in &probes.probes {
            let selection = matcher.select(&probe.provider, &probe.name);
            let Some(target) = selection.winner else { continue };
            let name = format!("{}:{}", probe.provider, probe.name);
            let (sites, refused) = usdt_sites(selecting.file, &selecting.code, probe, UprobeProgram::Site);
            for why in refused {
                self.remark(target, format!("a location of {name} in {path} is not probed: {why}"));
            }
            if sites.is_empty() {
                continue;
            }
            let selected = SelectedFunction { target, name, file: self.path.clone(), line: None };
            let planned = PlannedFunction {
                selected,
                aliases: Vec::new(),
                symbols: Vec::new(),
                entry: Entry::Usdt,
                shadowed: selection.shadowed,
            };
            if self.take_room(planned.bytes(&sites)) {
                self.selected.push((planned, sites));
            }
        }
        Ok(())
    }

    fn remark(&mut self, target: TargetIndex, text: String) {
        if !self.take_room(size_of::<Remark>() + text.len()) {
            return;
        }
        self.remarks.push(Remark { target: Some(target), text });
    }
}
