//! The session's functions: each selected function has one index, in whatever processes it appears.

use std::collections::HashMap;

use crate::{probe::plan::SelectedFunction, session::SessionError};

/// Functions by index, and indices by function.
#[derive(Debug)]
pub struct FunctionTable {
    functions: Vec<SelectedFunction>,
    indices: HashMap<SelectedFunction, u32>,
    capacity: u32,
}

impl FunctionTable {
    /// An empty table with room for as many as the engine's maps.
    pub fn new(capacity: u32) -> Self {
        Self { functions: Vec::new(), indices: HashMap::new(), capacity }
    }

    /// The index of a function, and whether it is new.
    ///
    /// # Errors
    /// [`SessionError::Full`].
    pub fn enter(&mut self, function: &SelectedFunction) -> Result<(u32, bool), SessionError> {
        if let Some(index) = self.indices.get(function) {
            return Ok((*index, false));
        }
        let index = u32::try_from(self.functions.len())
            .ok()
            .filter(|index| *index < self.capacity)
            .ok_or(SessionError::Full { things: "functions", capacity: self.capacity })?;
        self.functions.push(function.clone());
        self.indices.insert(function.clone(), index);
        Ok((index, true))
    }

    /// All functions with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &SelectedFunction)> {
        (0_u32..).zip(&self.functions)
    }
}
