//! ELF files: function symbols, where they lie in the file, and USDT probes.
//!
//! Uprobes attach to file offsets, users write names; this module turns one into the other. It reads files
//! only and never attaches. What it needs of a process (the value of a GOT slot) it gets from its caller.
//!
//! # Files that change under us
//!
//! The files belong to production processes, may be gigabytes, and may be rewritten in place while we read.
//! They are therefore not mapped: a file truncated under a mapping ends its reader with SIGBUS. Headers and
//! the tables that a question needs (symbols, strings, notes, relocations) are copied with `pread`, each
//! bounded by the size of the file and by [`TABLE_LIMIT`], and all together by what the file has on disk,
//! since a sparse file can claim any size; the rest is never read. The cost follows the number of symbols,
//! not the size of the file, just as it would with a mapping.
//!
//! # Where things are
//!
//! [`ElfFile`] opens and checks a file; [`Segments`] translates addresses and offsets; [`Functions`] is
//! the union of all symbol tables, with [`Refusal`] for symbols that cannot be probed; [`SymbolName`]
//! demangles on demand; [`resolve_indirect`] follows an IFUNC in a process; [`UsdtProbes`] are the
//! static probes. What differs between architectures is in [`Machine`].

pub mod debug_files;
pub mod effort;
pub mod error;
pub mod file;
pub mod functions;
mod go_table;
pub mod indirect;
pub mod machine;
mod mini_debug_info;
pub mod name;
pub mod parts;
pub mod root;
mod same_name;
pub mod segments;
mod source;
mod tables;
pub mod usdt;

#[cfg(test)]
mod fixture;

pub use effort::{Effort, Exhausted};
pub use error::{ElfError, ElfErrorKind};
pub use file::ElfFile;
pub use functions::{Candidates, FunctionSymbol, Functions, IndirectFunction, Named, Refusal, RefusedSymbol};
#[doc(hidden)] // For fuzz targets.
pub use go_table::parse as parse_go_table;
pub use indirect::{Module, resolve_indirect};
pub use machine::Machine;
#[doc(hidden)] // For fuzz targets.
pub use mini_debug_info::unpack as unpack_mini_debug_info;
pub use name::{Binding, FunctionNames, SymbolName, SymbolVersion, TableKind};
pub use parts::RawSymbol;
pub use root::Root;
pub use segments::{LoadBias, Segment, Segments};
pub use source::TABLE_LIMIT;
pub use usdt::{ArgumentError, UsdtArgument, UsdtLocation, UsdtProbe, UsdtProbes};
