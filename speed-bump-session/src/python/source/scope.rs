//! How CPython names code objects, in each release: `compiler_set_qualname` (Python/compile.c).

use std::collections::HashSet;

use crate::{
    bounds::{NAME_BYTES, cut},
    python::version::PythonVersion,
};

/// The position of a scope in the list of a file's scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeId(usize);

impl ScopeId {
    /// The position of the scope. No other scope of the file has the same position.
    pub(super) fn place(self) -> usize {
        self.0
    }
}

/// The kind of source from which CPython compiles a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScopeKind {
    Module,
    Class,
    /// A `def` or a `lambda`.
    Function,
    Comprehension,
    /// PEP 695: `<generic parameters of f>`.
    TypeParameters,
    /// The bound or default of one type parameter.
    TypeVariable,
    /// The right side of a `type` statement.
    TypeAlias,
    /// PEP 649: `__annotate__`.
    Annotations,
}

#[derive(Debug)]
struct Scope {
    kind: ScopeKind,
    parent: Option<ScopeId>,
    qualname: String,
    /// Names that this scope itself declares in a `global` statement.
    globals: HashSet<String>,
    /// Whether CPython evaluates the scope lazily inside a class body. Then the scope can see the names of
    /// the class.
    sees_class: bool,
    /// The line of the definition. CPython compiles code from the definition's annotations at this line.
    line: u32,
}

/// The scopes of a file, as one release sees them.
#[derive(Debug)]
pub(super) struct Scopes {
    scopes: Vec<Scope>,
    version: PythonVersion,
    /// The total length of the qualified names in bytes.
    bytes: usize,
}

impl Scopes {
    pub(super) const MODULE: ScopeId = ScopeId(0);

    /// Starts with the module alone. CPython compiles the module's annotations at the line of its first
    /// statement.
    pub(super) fn new(version: PythonVersion, first_statement: u32) -> Self {
        let module = Scope {
            kind: ScopeKind::Module,
            parent: None,
            qualname: "<module>".to_owned(),
            globals: HashSet::new(),
            sees_class: false,
            line: first_statement,
        };
        Self { scopes: vec![module], version, bytes: 0 }
    }

    /// The total length of the qualified names so far, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn get(&self, id: ScopeId) -> Option<&Scope> {
        self.scopes.get(id.0)
    }

    /// Adds a scope with this `co_name` inside another scope.
    pub(super) fn add(&mut self, kind: ScopeKind, parent: ScopeId, name: &str, line: u32) -> ScopeId {
        let is_definition = matches!(kind, ScopeKind::Class | ScopeKind::Function) && !name.starts_with('<');
        let qualname = self.qualname(parent, name, is_definition);
        self.push(kind, parent, qualname, line)
    }

    fn push(&mut self, kind: ScopeKind, parent: ScopeId, qualname: String, line: u32) -> ScopeId {
        let is_lazy = matches!(
            kind,
            ScopeKind::TypeParameters
                | ScopeKind::TypeVariable
                | ScopeKind::TypeAlias
                | ScopeKind::Annotations
        );
        let sees_class = is_lazy
            && self.get(parent).is_some_and(|outer| outer.kind == ScopeKind::Class || outer.sees_class);
        // A qualified name includes all outer names, so deep nesting makes long names.
        let qualname = cut(&qualname, NAME_BYTES).0.to_owned();
        self.bytes += qualname.len();
        self.scopes.push(Scope {
            kind,
            parent: Some(parent),
            qualname,
            globals: HashSet::new(),
            sees_class,
            line,
        });
        ScopeId(self.scopes.len() - 1)
    }

    /// Adds the `__annotate__` of a function that a scope defines.
    pub(super) fn add_annotations_of_function(
        &mut self,
        parent: ScopeId,
        function: &str,
        line: u32,
    ) -> ScopeId {
        let bare = self.qualname(parent, "__annotate__", false);
        // There is an exception to 3.15's rule: a generic function of a module.
        let is_direct = self.kind(parent) != ScopeKind::TypeParameters || bare != "__annotate__";
        let qualname = if self.version.is_at_least(3, 15) && is_direct {
            format!("{}.__annotate__", self.qualname(parent, function, true))
        } else {
            bare
        };
        self.push(ScopeKind::Annotations, parent, qualname, line)
    }

    fn qualname(&self, parent: ScopeId, name: &str, is_definition: bool) -> String {
        let Some(mut outer) = self.get(parent) else { return name.to_owned() };
        if self.is_transparent(outer.kind) {
            let Some(next) = outer.parent.and_then(|id| self.get(id)) else { return name.to_owned() };
            outer = next;
        }
        match outer.kind {
            ScopeKind::Module => name.to_owned(),
            _ if is_definition && outer.globals.contains(name) => name.to_owned(),
            ScopeKind::Function | ScopeKind::TypeAlias if !self.is_transparent(outer.kind) => {
                format!("{}.<locals>.{name}", outer.qualname)
            }
            _ => format!("{}.{name}", outer.qualname),
        }
    }

    /// Whether CPython names a definition inside this kind of scope as if it were outside of it.
    fn is_transparent(&self, kind: ScopeKind) -> bool {
        match kind {
            ScopeKind::TypeParameters | ScopeKind::TypeVariable => true,
            ScopeKind::TypeAlias | ScopeKind::Annotations => self.version.is_at_least(3, 14),
            _ => false,
        }
    }

    /// Whether CPython compiles a list, set or dict comprehension in this scope into the code around it (PEP
    /// 709).
    pub(super) fn inlines_comprehensions(&self, scope: ScopeId) -> bool {
        self.version.is_at_least(3, 12) && !self.get(scope).is_some_and(|scope| scope.sees_class)
    }

    pub(super) fn declare_global(&mut self, scope: ScopeId, name: &str) {
        if let Some(scope) = self.scopes.get_mut(scope.0) {
            scope.globals.insert(name.to_owned());
        }
    }

    pub(super) fn kind(&self, scope: ScopeId) -> ScopeKind {
        self.get(scope).map_or(ScopeKind::Module, |scope| scope.kind)
    }

    pub(super) fn line(&self, scope: ScopeId) -> u32 {
        self.get(scope).map_or(1, |scope| scope.line)
    }

    pub(super) fn qualified(&self, scope: ScopeId) -> &str {
        self.get(scope).map_or("<module>", |scope| &scope.qualname)
    }
}
