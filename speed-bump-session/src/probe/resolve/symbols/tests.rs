#![allow(clippy::unwrap_used)]
use std::process::{Child, Command, Stdio};

use speed_bump_testing::Fixture;

use super::*;
use crate::{targets::ParsedTargets, units::Pid};

const PROGRAM: &str = "#include <stdio.h>\n\
    #define FUNCTION __attribute__((noipa, noinline, noclone))\n\
    FUNCTION int named(int x) { return x + 1; }\n\
    static FUNCTION int twin_a(int x) { return x + 2; }\n\
    static FUNCTION int twin_b(int x) { return x + 3; }\n\
    static FUNCTION int own(int x) { return x + 4; }\n\
    int main(void) { puts(\"ready\"); fflush(stdout); getchar(); return own(named(twin_a(twin_b(0)))); \
    }\n";

fn start(program: &Path) -> (Child, Process) {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let process = Process::open(Pid::new(child.id().cast_signed()).unwrap()).unwrap();
    (child, process)
}

fn resolver(lines: &str) -> SymbolResolver {
    let targets = ParsedTargets::parse("targets", lines.as_bytes(), false).unwrap();
    SymbolResolver::new(Arc::new(targets.decide(|_| false)))
}

fn texts(found: &NamedFunctions) -> String {
    found.remarks.iter().map(|remark| remark.text.as_str()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_function_counts_if_path_and_symbol_lead_to_it() {
    let fixture = Fixture::compile_text(PROGRAM, &["-O1"]).unwrap();
    let program = fixture.folder().join("twins");
    let renamed = Command::new("objcopy")
        .args(["--redefine-sym", "twin_b=twin_a"])
        .args([fixture.program(), &program])
        .status();
    assert!(renamed.unwrap().success());
    let (mut child, process) = start(&program);

    let resolver = resolver("native:*/twins:named\nnative:*/twins:twin_*\nnative:*/twins:own\n");
    let found = resolver.resolve(&process).unwrap();
    let names: Vec<_> = found
        .functions
        .iter()
        .map(|function| (function.selected.target.0, function.symbol.as_str(), function.path.as_path()))
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [(0, "named", program.as_path()), (2, "own", program.as_path())]);
    assert!(texts(&found).contains("several functions of this name"), "{}", texts(&found));

    // The file that the process runs keeps its inode, but is at another path now.
    let other = fixture.folder().join("other");
    fs::copy(fixture.program(), &other).unwrap();
    fs::rename(&other, &program).unwrap();
    let found = resolver.resolve(&process).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.functions, []);
    assert!(texts(&found).contains("is no longer the file"), "{}", texts(&found));
}

#[test]
fn what_only_debugging_information_names_is_left_out() {
    let table = |text: &str, table| SymbolName::new(text.as_bytes(), None, Binding::Global, table);
    assert!(is_in_file(&table("f", TableKind::Dynamic)) && is_in_file(&table("f", TableKind::Symbols)));
    assert!(is_in_file(&table("f@@V1", TableKind::Dynamic)));
    assert!(!is_in_file(&table("f@@V1", TableKind::Symbols)));
    assert!(!is_in_file(&table("f", TableKind::MiniDebugInfo)));
}
