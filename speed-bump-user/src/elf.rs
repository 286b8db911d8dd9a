//! ELF files: function symbols, where they lie in the file, and USDT probes.
