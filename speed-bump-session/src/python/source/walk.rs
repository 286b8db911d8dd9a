//! Finds the code objects in a syntax tree, and the scope in which CPython evaluates each node.
//!
//! Decorators, defaults, base classes and a comprehension's first iterable belong to the scope around a
//! definition. Bodies belong to the scope of the definition itself. The walk keeps its own stack on the heap,
//! so that deeply nested text does no harm.

use std::collections::{HashMap, hash_map::Entry};

use tree_sitter::{Node, Tree};

use super::{
    CodeObject,
    scope::{ScopeId, ScopeKind, Scopes},
};
use crate::python::version::PythonVersion;

/// All code objects of a file, the module first; `None` if their names take more bytes than `limit`.
pub(super) fn code_objects(
    tree: &Tree,
    text: &[u8],
    version: PythonVersion,
    most: usize,
) -> Option<Vec<CodeObject>> {
    let root = tree.root_node();
    let first_statement = named_children(root).into_iter().find(|node| node.kind() != "comment");
    let mut walk = Walk {
        text,
        version,
        scopes: Scopes::new(version, first_statement.map_or(1, line_of)),
        annotations: HashMap::new(),
        objects: Vec::new(),
        waiting: Vec::new(),
    };
    walk.objects.push(CodeObject {
        name: "<module>".to_owned(),
        qualname: "<module>".to_owned(),
        first_line: 1,
        last_line: line_of_end(root).max(1),
    });
    walk.waiting.push(Task { node: root, scope: Scopes::MODULE, first_line: None });
    while let Some(task) = walk.waiting.pop() {
        if walk.scopes.bytes() > most {
            return None;
        }
        // Pushes in reverse order, so that we visit `global` statements before the names that they declare.
        let mark = walk.waiting.len();
        walk.visit(task);
        if let Some(added) = walk.waiting.get_mut(mark..) {
            added.reverse();
        }
    }
    Some(walk.objects)
}

/// A node to visit, and the scope in which CPython evaluates it.
#[derive(Clone, Copy)]
struct Task<'tree> {
    node: Node<'tree>,
    scope: ScopeId,
    /// The line of the first decorator, if the definition has one.
    first_line: Option<u32>,
}

struct Walk<'tree, 'text> {
    text: &'text [u8],
    version: PythonVersion,
    scopes: Scopes,
    /// The `__annotate__` of each module or class, which has only one.
    annotations: HashMap<usize, ScopeId>,
    objects: Vec<CodeObject>,
    waiting: Vec<Task<'tree>>,
}

impl<'tree> Walk<'tree, '_> {
    fn visit(&mut self, Task { node, scope, first_line }: Task<'tree>) {
        match node.kind() {
            "decorated_definition" => self.decorated(node, scope),
            "function_definition" => self.function(node, scope, first_line),
            "class_definition" => self.class(node, scope, first_line),
            "lambda" => self.lambda(node, scope),
            "list_comprehension" => self.comprehension(node, scope, "<listcomp>"),
            "set_comprehension" => self.comprehension(node, scope, "<setcomp>"),
            "dictionary_comprehension" => self.comprehension(node, scope, "<dictcomp>"),
            "generator_expression" => self.comprehension(node, scope, "<genexpr>"),
            "global_statement" => self.global(node, scope),
            "type_alias_statement" => self.type_alias(node, scope),
            "assignment" => self.assignment(node, scope),
            _ => self.children(node, scope),
        }
    }

    fn later(&mut self, node: Option<Node<'tree>>, scope: ScopeId) {
        self.waiting.extend(node.map(|node| Task { node, scope, first_line: None }));
    }

    fn children(&mut self, node: Node<'tree>, scope: ScopeId) {
        for child in named_children(node) {
            self.later(Some(child), scope);
        }
    }

    fn decorated(&mut self, node: Node<'tree>, scope: ScopeId) {
        let mut first_line = None;
        for child in named_children(node) {
            let is_decorator = child.kind() == "decorator";
            if is_decorator && first_line.is_none() {
                first_line = child.named_child(0).map(|expression| line_of(without_parentheses(expression)));
            }
            let first_line = first_line.filter(|_| !is_decorator);
            self.waiting.push(Task { node: child, scope, first_line });
        }
    }

    fn function(&mut self, node: Node<'tree>, scope: ScopeId, decorator: Option<u32>) {
        let Some(name) = self.name_of(node) else { return self.children(node, scope) };
        let (line, first_line) = (line_of(node), decorator.unwrap_or_else(|| line_of(node)));
        let outer = self.type_parameters(node, scope, &name, first_line);
        let parameters = node.child_by_field_name("parameters");

        let mut annotated: Vec<Node<'tree>> = node.child_by_field_name("return_type").into_iter().collect();
        for parameter in parameters.into_iter().flat_map(named_children) {
            annotated.extend(parameter.child_by_field_name("type"));
            match parameter.kind() {
                "default_parameter" | "typed_default_parameter" => {
                    self.later(parameter.child_by_field_name("value"), scope);
                }
                "typed_parameter" => {}
                _ => self.later(Some(parameter), scope),
            }
        }
        let annotations = if annotated.is_empty() || !self.has_lazy_annotations() {
            outer
        } else {
            let annotations = self.scopes.add_annotations_of_function(outer, &name, line);
            self.record("__annotate__", annotations, line, line_of_end(node));
            annotations
        };
        for annotation in annotated {
            self.later(Some(annotation), annotations);
        }

        let inner = self.scopes.add(ScopeKind::Function, outer, &name, line);
        self.record(&name, inner, first_line, line_of_end(node));
        self.later(node.child_by_field_name("body"), inner);
    }

    fn class(&mut self, node: Node<'tree>, scope: ScopeId, decorator: Option<u32>) {
        let Some(name) = self.name_of(node) else { return self.children(node, scope) };
        let first_line = decorator.unwrap_or_else(|| line_of(node));
        let outer = self.type_parameters(node, scope, &name, first_line);
        self.later(node.child_by_field_name("superclasses"), outer);
        let inner = self.scopes.add(ScopeKind::Class, outer, &name, first_line);
        self.record(&name, inner, first_line, line_of_end(node));
        self.later(node.child_by_field_name("body"), inner);
    }

    fn lambda(&mut self, node: Node<'tree>, scope: ScopeId) {
        for parameter in node.child_by_field_name("parameters").into_iter().flat_map(named_children) {
            self.later(parameter.child_by_field_name("value"), scope);
        }
        let inner = self.open(ScopeKind::Function, scope, "<lambda>", node);
        self.later(node.child_by_field_name("body"), inner);
    }

    fn comprehension(&mut self, node: Node<'tree>, scope: ScopeId, name: &str) {
        let inner = if name != "<genexpr>" && self.scopes.inlines_comprehensions(scope) {
            scope
        } else {
            self.open(ScopeKind::Comprehension, scope, name, node)
        };
        let mut is_first = true;
        for child in named_children(node) {
            if child.kind() == "for_in_clause" && std::mem::take(&mut is_first) {
                let mut cursor = child.walk();
                let iterables: Vec<_> = child.children_by_field_name("right", &mut cursor).collect();
                for iterable in iterables {
                    self.later(Some(iterable), scope);
                }
                self.later(child.child_by_field_name("left"), inner);
            } else {
                self.later(Some(child), inner);
            }
        }
    }

    fn global(&mut self, node: Node<'tree>, scope: ScopeId) {
        for name in named_children(node) {
            if let Some(name) = self.text_of(name) {
                self.scopes.declare_global(scope, &name);
            }
        }
    }

    /// `type X[T] = ...` (3.12+): a scope for the parameters, and one for the value.
    fn type_alias(&mut self, node: Node<'tree>, scope: ScopeId) {
        let left = node.child_by_field_name("left").and_then(|left| left.named_child(0));
        let (name, parameters) = match left.map(|left| (left, left.kind())) {
            Some((left, "generic_type")) => {
                let parameters =
                    named_children(left).into_iter().find(|child| child.kind() == "type_parameter");
                (left.named_child(0), parameters)
            }
            Some((left, "identifier")) => (Some(left), None),
            // The grammar takes `type(self).x = ...` for a `type` statement.
            _ => (None, None),
        };
        let name = name.filter(|_| self.version.is_at_least(3, 12)).and_then(|name| self.text_of(name));
        let Some(name) = name else { return self.children(node, scope) };
        let outer = self.type_parameter_list(parameters, scope, &name, line_of(node));
        let inner = self.open(ScopeKind::TypeAlias, outer, &name, node);
        self.later(node.child_by_field_name("right"), inner);
    }

    fn type_parameters(&mut self, node: Node<'tree>, scope: ScopeId, name: &str, line: u32) -> ScopeId {
        self.type_parameter_list(node.child_by_field_name("type_parameters"), scope, name, line)
    }

    /// Opens `<generic parameters of NAME>` if there are type parameters, and a scope for each parameter with
    /// a bound.
    fn type_parameter_list(
        &mut self,
        list: Option<Node<'tree>>,
        scope: ScopeId,
        name: &str,
        line: u32,
    ) -> ScopeId {
        let Some(list) = list.filter(|_| self.version.is_at_least(3, 12)) else { return scope };
        let generic = format!("<generic parameters of {name}>");
        let outer = self.scopes.add(ScopeKind::TypeParameters, scope, &generic, line);
        self.record(&generic, outer, line, line_of_end(list));
        for parameter in named_children(list) {
            let parameter =
                parameter.named_child(0).filter(|_| parameter.kind() == "type").unwrap_or(parameter);
            let bound = (parameter.kind() == "constrained_type").then(|| parameter.named_child(1)).flatten();
            let variable = parameter.named_child(0).and_then(|variable| self.text_of(variable));
            if let (Some(bound), Some(variable)) = (bound, variable) {
                let inner = self.open(ScopeKind::TypeVariable, outer, &variable, parameter);
                self.later(Some(bound), inner);
            } else {
                self.later(Some(parameter), outer);
            }
        }
        outer
    }

    /// In a module or class, the annotation of a variable belongs to the `__annotate__` of that scope (PEP
    /// 649).
    fn assignment(&mut self, node: Node<'tree>, scope: ScopeId) {
        let annotation = node.child_by_field_name("type");
        let owner = matches!(self.scopes.kind(scope), ScopeKind::Module | ScopeKind::Class);
        self.later(node.child_by_field_name("left"), scope);
        if annotation.is_some() && owner && self.has_lazy_annotations() {
            let annotations = self.annotations_of(scope, node);
            self.later(annotation, annotations);
        } else {
            self.later(annotation, scope);
        }
        self.later(node.child_by_field_name("right"), scope);
    }

    fn annotations_of(&mut self, owner: ScopeId, node: Node<'tree>) -> ScopeId {
        let line = self.scopes.line(owner);
        match self.annotations.entry(owner.place()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let added = self.scopes.add(ScopeKind::Annotations, owner, "__annotate__", line);
                place.insert(added);
                self.record("__annotate__", added, line, line_of_end(node));
                added
            }
        }
    }

    fn has_lazy_annotations(&self) -> bool {
        self.version.is_at_least(3, 14)
    }

    /// Opens a scope whose code object starts on the first line of the node.
    fn open(&mut self, kind: ScopeKind, scope: ScopeId, name: &str, node: Node<'tree>) -> ScopeId {
        let inner = self.scopes.add(kind, scope, name, line_of(node));
        self.record(name, inner, line_of(node), line_of_end(node));
        inner
    }

    fn record(&mut self, name: &str, scope: ScopeId, first_line: u32, last_line: u32) {
        self.objects.push(CodeObject {
            name: name.to_owned(),
            qualname: self.scopes.qualified(scope).to_owned(),
            first_line,
            last_line: last_line.max(first_line),
        });
    }

    fn name_of(&self, node: Node<'tree>) -> Option<String> {
        self.text_of(node.child_by_field_name("name")?)
    }

    fn text_of(&self, node: Node<'tree>) -> Option<String> {
        let text = node.utf8_text(self.text).ok()?;
        (!text.is_empty()).then(|| text.to_owned())
    }
}

fn named_children(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.named_children(&mut cursor).collect()
}

/// CPython's syntax trees have no parentheses: an expression starts inside them.
fn without_parentheses(mut node: Node<'_>) -> Node<'_> {
    while node.kind() == "parenthesized_expression"
        && let Some(inner) = node.named_child(0)
    {
        node = inner;
    }
    node
}

fn line_of(node: Node<'_>) -> u32 {
    u32::try_from(node.start_position().row).map_or(u32::MAX, |row| row.saturating_add(1))
}

fn line_of_end(node: Node<'_>) -> u32 {
    u32::try_from(node.end_position().row).map_or(u32::MAX, |row| row.saturating_add(1))
}
