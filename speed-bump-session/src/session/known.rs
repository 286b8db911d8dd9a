//! The functions that a session knows. We count a function once, even if it is in several processes.

use std::{collections::HashMap, sync::Arc};

use crate::probe::plan::SelectedFunction;

/// The number of a function in its session, from 0. A number always means the same function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// The function with each number, and the number of each function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownFunctions {
    functions: Vec<Arc<SelectedFunction>>,
    ids: HashMap<Arc<SelectedFunction>, FunctionId>,
}

impl KnownFunctions {
    /// The number of a function. Adds the function if it is new.
    pub(crate) fn enter(&mut self, function: SelectedFunction) -> FunctionId {
        if let Some(id) = self.id(&function) {
            return id;
        }
        let id = FunctionId(u32::try_from(self.functions.len()).unwrap_or(u32::MAX));
        let function = Arc::new(function);
        self.functions.push(Arc::clone(&function));
        self.ids.insert(function, id);
        id
    }

    /// The number of a function, if the session knows the function.
    pub fn id(&self, function: &SelectedFunction) -> Option<FunctionId> {
        self.ids.get(function).copied()
    }

    /// The function with this number.
    pub fn get(&self, id: FunctionId) -> Option<&SelectedFunction> {
        self.functions.get(id.0 as usize).map(|function| &**function)
    }

    /// All functions, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FunctionId, &SelectedFunction)> {
        self.functions.iter().enumerate().map(|(id, function)| {
            // The number fits into the type, because `enter` has already given it to the function.
            (FunctionId(u32::try_from(id).unwrap_or(u32::MAX)), &**function)
        })
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }
}
