//! The program of `tests/fixtures/matrix`, which calls functions of every shape and knows how often.

use std::path::PathBuf;

use crate::places;

/// The targets that select every function which the program counts, and few others.
pub const TARGETS: &str = "\
    */matrix/subjects.py:*\n\
    */matrix/special.py:*\n\
    */matrix/suspended.py:*\n\
    */matrix/late.py:*\n\
    <matrix *>:*\n\
    <string>:matrix_*\n\
    !*:*spared*\n";

/// Whether the program keeps count of this function of this file: those of other files are not its own.
pub fn is_subject(file: &str, name: &str) -> bool {
    let files = ["subjects.py", "special.py", "suspended.py", "late.py"];
    let is_own = files.iter().any(|own| file.ends_with(&format!("/matrix/{own}")));
    (is_own || file.starts_with("<matrix ")) && !name.contains("spared")
}

/// The program's script.
pub fn script() -> PathBuf {
    places::fixtures().join("matrix/service.py")
}
