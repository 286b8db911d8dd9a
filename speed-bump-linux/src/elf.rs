//! ELF files: function symbols, their offsets in the file, and USDT probes.
//!
//! Uprobes attach to file offsets, and users write names. This module turns names into offsets. It only reads
//! files, and never attaches. If it needs something from a process (the value of a GOT slot), the caller
//! provides it.
//!
//! # Files that change under us
//!
//! The files belong to production processes, may be gigabytes, and may be rewritten in place while we read.
//! So we do not map them: if someone truncates a mapped file, SIGBUS ends its reader. With `pread` we copy
//! headers, and the tables that a question needs (symbols, strings, notes, relocations). The size of the file
//! and [`TABLE_LIMIT`] bound the size of each table. The bytes of the file on disk bound all tables together,
//! because a sparse file can claim any size. We never read the other parts of the file. So, as with a
//! mapping, the cost depends on the number of symbols and not on the size of the file.
//!
//! # The parts of this module
//!
//! [`ElfFile`] opens and checks a file. [`Segments`] translates addresses and offsets. [`Functions`] is the
//! union of all symbol tables, with a [`Refusal`] for each symbol that cannot have a probe. [`SymbolName`]
//! demangles when needed. [`resolve_indirect`] finds the code of an IFUNC in a process. [`UsdtProbes`] are
//! the static probes. [`Machine`] contains the differences between architectures.

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
