//! Difficult texts, and the names that CPython gives their code objects.

use super::*;

/// `line co_qualname` of all code objects except the module.
fn all(text: &str, minor: u8) -> Vec<String> {
    let index = index(text, minor);
    let objects = index.code_objects().iter().filter(|object| object.name != "<module>");
    objects.map(|object| format!("{} {}", object.first_line, object.qualname)).collect()
}

fn sorted(names: impl IntoIterator<Item = impl Into<String>>) -> Vec<String> {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    names.sort();
    names
}

fn found<'index>(index: &'index SourceIndex, name: &str, line: i32) -> (Vec<&'index str>, MatchedBy) {
    let candidates = index.find(name, line).unwrap();
    (candidates.qualnames, candidates.matched_by)
}

#[test]
fn definitions_nest() {
    let text = "\
class K:
    class Inner:
        def m(self):
            def local(): return lambda: 1
            class L:
                async def deep(self): pass
    def __private(self): pass
";
    let expected = [
        "1 K",
        "2 K.Inner",
        "3 K.Inner.m",
        "4 K.Inner.m.<locals>.local",
        "4 K.Inner.m.<locals>.local.<locals>.<lambda>",
        "5 K.Inner.m.<locals>.L",
        "6 K.Inner.m.<locals>.L.deep",
        "7 K.__private",
    ];
    assert_eq!(all(text, 11), expected);
}

#[test]
fn decorated_definitions_start_at_the_first_decorator() {
    let text = "@a\n@b(lambda: 1)\ndef f(): pass\n@(\n  c\n)\nclass K:\n  @d\n  async def m(self): pass\n";
    assert_eq!(all(text, 11), ["1 f", "2 <lambda>", "5 K", "8 K.m"]);
}

#[test]
fn defaults_bases_and_first_iterables_belong_to_the_scope_around() {
    let text = "\
def f(a=lambda: 1, *, b: int = (lambda: 2)):
    return [g(lambda: 3) for x in (lambda: 4)() if (lambda: 5)]
class K(base(lambda: 6)):
    m = lambda self, d=(lambda: 7): (lambda: 8)
";
    let common = [
        "1 <lambda>",
        "1 <lambda>",
        "1 f",
        "2 f.<locals>.<lambda>",
        "3 <lambda>",
        "3 K",
        "4 K.<lambda>",
        "4 K.<lambda>",
        "4 K.<lambda>.<locals>.<lambda>",
    ];
    let own_scope =
        ["2 f.<locals>.<listcomp>", "2 f.<locals>.<listcomp>.<lambda>", "2 f.<locals>.<listcomp>.<lambda>"];
    let inlined = ["2 f.<locals>.<lambda>"; 2];
    assert_eq!(sorted(all(text, 11)), sorted([&common[..], &own_scope].concat()));
    assert_eq!(sorted(all(text, 12)), sorted([&common[..], &inlined].concat()));
}

#[test]
fn global_definitions_have_no_prefix() {
    let text = "\
def outer():
    global f, K
    def f():
        def local(): pass
    class K:
        def m(self): pass
        def f(self): pass
    def g(): pass
class C:
    global h
    def h(): pass
";
    let expected = [
        "1 outer",
        "3 f",
        "4 f.<locals>.local",
        "5 K",
        "6 K.m",
        "7 K.f",
        "8 outer.<locals>.g",
        "9 C",
        "11 h",
    ];
    assert_eq!(all(text, 11), expected);
}

#[test]
fn two_lambdas_of_a_line_are_both_candidates() {
    let index = index("def f():\n    return [lambda: 1, g(lambda: (lambda: 2))]\n", 11);
    let expected = vec!["f.<locals>.<lambda>", "f.<locals>.<lambda>.<locals>.<lambda>"];
    assert_eq!(found(&index, "<lambda>", 2), (expected, MatchedBy::FirstLine));
}

#[test]
fn a_line_tells_functions_of_one_name_apart() {
    let text = "class A:\n  def f(self): pass\nclass B:\n  def f(self): pass\n  def g(self): pass\n";
    let index = index(text, 10);
    assert_eq!(found(&index, "f", 4), (vec!["B.f"], MatchedBy::FirstLine));
    assert_eq!(found(&index, "g", -1), (vec!["B.g"], MatchedBy::Name));
    assert_eq!(found(&index, "f", -1), (vec!["A.f", "B.f"], MatchedBy::Name));
    assert_eq!(found(&index, "f", 99), (vec!["A.f", "B.f"], MatchedBy::Name));
    assert_eq!(index.find("h", 4), None);
    assert_eq!(found(&index, "<module>", -1), (vec!["<module>"], MatchedBy::Name));
}

#[test]
fn a_resumed_generator_is_the_innermost_around_the_line() {
    let index = index("def f():\n  def f():\n    yield 1\n    yield 2\n  yield 3\n", 10);
    assert_eq!(found(&index, "f", 4), (vec!["f.<locals>.f"], MatchedBy::Inside));
    assert_eq!(found(&index, "f", 5), (vec!["f"], MatchedBy::Inside));
}

#[test]
fn type_parameters_name_scopes_but_not_what_they_hold() {
    let text = "\
class K[T: int](B):
    def m[V](self, a: V) -> V: pass
    type A[W] = list[W]
type X = int
";
    let common = [
        "1 <generic parameters of K>",
        "1 T",
        "1 K",
        "2 K.<generic parameters of m>",
        "2 K.m",
        "3 K.<generic parameters of A>",
        "3 K.A",
        "4 X",
    ];
    // CPython compiles the bound of `T`. The name of that code, like the name of the class, does not contain
    // the scope of the type parameters that is around both.
    assert_eq!(sorted(all(text, 13)), sorted(common));
    assert_eq!(sorted(all(text, 14)), sorted([&common[..], &["2 K.__annotate__"]].concat()));
    assert_eq!(sorted(all(text, 15)), sorted([&common[..], &["2 K.m.__annotate__"]].concat()));
}

#[test]
fn what_only_looks_like_a_type_statement_is_none() {
    assert_eq!(all("def f(x):\n  type(x).a = lambda: 1\n", 13), ["1 f", "2 f.<locals>.<lambda>"]);
}

#[test]
fn annotations_are_compiled_apart_since_314() {
    let text = "import x\na: int\nclass K:\n  b: int\n  c: (lambda: 1)\n";
    assert_eq!(all(text, 13), ["3 K", "5 K.<lambda>"]);
    assert_eq!(all(text, 14), ["1 __annotate__", "3 K", "3 K.__annotate__", "5 K.<lambda>"]);
    assert_eq!(all("def f[T](a: T): pass\n", 15), ["1 <generic parameters of f>", "1 __annotate__", "1 f"]);
}

#[test]
fn lines_are_counted_as_cpython_counts_them() {
    for text in
        ["\r\ndef f(): pass\r\n", "\rdef f(): pass\r", "\u{feff}\ndef f(): pass\n", "\x0c\ndef f(): pass"]
    {
        assert_eq!(all(text, 11), ["2 f"], "{text:?}");
    }
    let latin = b"# coding: latin-1\n# \xe9\ndef f(): pass\n";
    let latin = SourceIndex::parse(latin, PythonVersion::new(3, 9)).unwrap();
    assert_eq!(found(&latin, "f", 3), (vec!["f"], MatchedBy::FirstLine));
}

#[test]
fn syntax_newer_than_the_grammar_costs_no_names() {
    for line in [
        "lazy import json",
        "x = t'{y}' t'z'",
        "def h[T: int = bool, *Ts = *tuple[int]](): pass",
        "class H[T = int]: pass",
        "try: pass\n  except A, B: pass",
        "x = [*y for y in z]",
    ] {
        let text = format!(
            "class A:\n  def f(self):\n    pass\n  {line}\n  def g(self): pass\nclass B:\n  def g(self): \
             pass\n"
        );
        let index = index(&text, 15);
        let first = i32::try_from(text.lines().count()).unwrap() - 2;
        assert_eq!(found(&index, "f", 2), (vec!["A.f"], MatchedBy::FirstLine), "{line}");
        assert_eq!(found(&index, "g", first), (vec!["A.g"], MatchedBy::FirstLine), "{line}");
        assert_eq!(found(&index, "g", first + 2), (vec!["B.g"], MatchedBy::FirstLine), "{line}");
    }
}

#[test]
fn broken_text_is_reported_and_still_indexed() {
    let text = "\
class A:
  def f(self): pass

def broken(:
  x = = 1

class B:
  def g(self): pass
";
    let broken = index(text, 11);
    assert!(broken.has_errors() && !index("def f(): pass\n", 11).has_errors());
    assert_eq!(found(&broken, "f", 2), (vec!["A.f"], MatchedBy::FirstLine));
    // After the error the grammar loses the class. `has_errors` warns of this.
    let (qualnames, matched_by) = found(&broken, "g", 8);
    assert!(matched_by == MatchedBy::FirstLine && qualnames.iter().all(|name| name.ends_with('g')));
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let text = format!("x = {}1{}\n", "(lambda: ".repeat(5_000), ")".repeat(5_000));
    assert!(index(&text, 11).code_objects().len() > 1);
    let text: String = (0..200).map(|depth| format!("{}def f():\n", " ".repeat(depth))).collect();
    assert!(index(&text, 11).code_objects().len() > 100);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_indexed(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        SourceIndex::parse(&bytes, PythonVersion::new(3, 15)).unwrap();
    }

    #[test]
    fn any_fragments_are_indexed(
        words in proptest::collection::vec(
            proptest::sample::select(vec![
                "def ", "f", "(", ")", ":", "\n", "  ", "class ", "lambda ", "[", "]", " for ", " in ", "@",
                "global ", "type ", "=", ",", "async ", "f'{", "}'", "\"\"\"", "\\\n", "->", "*",
            ]),
            0..80,
        ),
        minor in 8_u8..=15,
    ) {
        index(&words.concat(), minor);
    }
}

#[test]
fn only_files_of_bounded_size_are_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("m.py"), "def f(): pass\n").unwrap();
    let root = ProcessRoot::at(folder.path()).unwrap();
    let version = PythonVersion::new(3, 15);
    assert_eq!(SourceIndex::read(&root, "/m.py", version).unwrap().code_objects().len(), 2);
    for name in ["<string>", "<frozen importlib._bootstrap>", ""] {
        assert!(matches!(SourceIndex::read(&root, name, version), Err(SourceError::NotAFile(_))), "{name}");
    }
    std::fs::File::create(folder.path().join("huge.py")).unwrap().set_len(SOURCE_LIMIT + 1).unwrap();
    for name in ["/huge.py", "/absent.py"] {
        let error = SourceIndex::read(&root, name, version).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn deep_nesting_makes_no_endless_names() {
    let nested = |depth| format!("x = {}1{}\n", "(lambda: ".repeat(depth), ")".repeat(depth));
    let deep = index(&nested(1_000), 15);
    let longest = deep.code_objects().iter().map(|object| object.qualname.len()).max();
    assert_eq!(longest, Some(crate::bounds::NAME_BYTES));
    let deeper = SourceIndex::parse(nested(20_000).as_bytes(), PythonVersion::new(3, 15)).unwrap_err();
    assert!(deeper.is_of_size(), "{deeper}");
}
