//! Finds all symbols with one name, of any kind.

use std::collections::BTreeSet;

use object::LittleEndian;

use super::{error::ElfError, file::ElfFile, name::TableKind, tables::Tables};
use crate::units::VirtualAddress;

impl ElfFile {
    /// The values of all symbols with this name in `.symtab` and `.dynsym`, each once. The symbols may be
    /// functions, data, or imports (whose value is 0).
    ///
    /// # Errors
    /// See [`ElfFile::functions`].
    pub fn values_of(&self, name: &str) -> Result<BTreeSet<VirtualAddress>, ElfError> {
        let cache = self.cache();
        let tables = Tables::read(self, &cache)?;
        let mut values = BTreeSet::new();
        for table in tables.symbol_tables(&[TableKind::Symbols, TableKind::Dynamic])? {
            let named = table.symbols.iter().filter(|symbol| table.name(symbol) == Ok(name.as_bytes()));
            values.extend(named.map(|symbol| VirtualAddress(symbol.st_value.get(LittleEndian))));
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use speed_bump_testing::Fixture;

    use super::*;

    #[test]
    fn functions_data_and_imports_of_a_name_are_told_apart() {
        let source = "#include <stdio.h>\n\
            static volatile int twin = 7;\n\
            __attribute__((noipa)) int other(int x) { return x + twin; }\n\
            int main(void) { puts(\"\"); return other(1); }\n";
        let fixture = Fixture::compile_text(source, &["-O1"]).unwrap();
        let values = |path: &std::path::Path, name| ElfFile::open(path).unwrap().values_of(name).unwrap();
        assert_eq!(values(fixture.program(), "other").len(), 1);
        assert_eq!(values(fixture.program(), "none").len(), 0);
        // An import. In .symtab its name includes its version.
        assert_eq!(values(fixture.program(), "puts"), [VirtualAddress(0)].into());

        let renamed = fixture.folder().join("renamed");
        let mut objcopy = Command::new("objcopy");
        objcopy.args(["--redefine-sym", "other=twin"]).args([fixture.program(), &renamed]);
        assert!(objcopy.status().unwrap().success());
        assert_eq!(values(&renamed, "twin").len(), 2);
    }
}
