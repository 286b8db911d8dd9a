//! Qualified names made of where code is nested, for Pythons whose code objects do not know theirs (before 3.11).

/// Longer names than this are left alone.
const BYTES: usize = 2048;

/// A qualified name that grows and shrinks with the nesting.
pub(crate) struct Qualname {
    bytes: [u8; BYTES],
    length: usize,
}

impl Qualname {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self { bytes: [0; BYTES], length: 0 }
    }

    /// Begins with a name. `false`: it is too long.
    pub(crate) fn set(&mut self, name: &str) -> bool {
        self.length = 0;
        self.push(name)
    }

    /// Goes into something nested in what the name stands for. `false`: the name becomes too long, and is not
    /// of use until it is shortened.
    pub(crate) fn enter(&mut self, of_function: bool, name: &str) -> bool {
        self.push(if of_function { ".<locals>." } else { "." }) && self.push(name)
    }

    /// Goes back to what had this length.
    pub(crate) fn leave_to(&mut self, length: usize) {
        self.length = length.min(self.length);
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The name.
    pub(crate) fn text(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    fn push(&mut self, part: &str) -> bool {
        let end = self.length + part.len();
        let Some(room) = self.bytes.get_mut(self.length..end) else { return false };
        room.copy_from_slice(part.as_bytes());
        self.length = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_nesting() {
        let mut name = Qualname::new();
        assert!(name.set("K.method"));
        let method = name.len();
        assert!(name.enter(true, "Inner"));
        assert!(name.enter(false, "f"));
        assert_eq!(name.text(), "K.method.<locals>.Inner.f");
        name.leave_to(method);
        assert!(name.enter(true, "<lambda>"));
        assert_eq!(name.text(), "K.method.<locals>.<lambda>");
    }

    #[test]
    fn a_name_that_is_too_long_is_refused() {
        let mut name = Qualname::new();
        assert!(!name.set(&"x".repeat(BYTES + 1)));
        assert!(name.set("f"));
        assert!(!name.enter(true, &"x".repeat(BYTES)));
        name.leave_to(1);
        assert_eq!(name.text(), "f");
    }
}
