//! Finds the offset of a member in a structure of the kernel, from BTF (Documentation/bpf/btf.rst).
//!
//! This module reads only what it needs for that. (aya-obj's reader does not give access to members. The
//! general readers on crates.io are LGPL or little used.) Any input is safe: we check sizes, and limit
//! recursion.

/// Why we did not find a member's offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The data is not BTF, or has the other byte order.
    #[error("not BTF of this machine's byte order")]
    BadMagic,
    /// The data ends early, or an offset leads outside.
    #[error("truncated or corrupt")]
    Corrupt,
    /// This reader does not know this kind of type, so it does not know its size.
    #[error("type {id} is of the unknown kind {kind}")]
    UnknownKind {
        /// The id of the type.
        id: u32,
        /// The kind (`BTF_KIND_*`).
        kind: u32,
    },
    /// There is no structure of this name.
    #[error("no struct {0}")]
    NoStruct(String),
    /// There is no member of this name, or it is a bit field.
    #[error("struct {structure} has no member {member} that starts at a byte")]
    NoMember {
        /// The name of the structure, without `struct`.
        structure: String,
        /// The name of the member.
        member: String,
    },
}

/// The type information of a kernel, indexed by type id.
#[derive(Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// The offset of each type in `types`. Type 0 (void) has none, so `offsets[id - 1]` belongs to type `id`.
    offsets: Vec<u32>,
}

/// A structure that we have found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure {
    id: u32,
    /// Size in bytes.
    pub size: u32,
}

const MAGIC: u16 = 0xeb9f;
/// The sizes of `struct btf_type` and `struct btf_member` in bytes.
const TYPE: usize = 12;
const MEMBER: usize = 12;
/// The greatest depth of structures in structures and of qualifiers of qualifiers: far more than in any C
/// program.
const MAX_DEPTH: usize = 16;
/// The most members that one search visits. This ends the search if corrupt structures contain themselves.
const MAX_VISITS: usize = 1 << 20;

// The kinds of types (include/uapi/linux/btf.h).
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const TYPE_TAG: u32 = 18;

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Whether the upper 8 bits of members have the width of bit fields. Only for structures and unions.
    wide_offsets: bool,
    /// The size, or the type to which this type refers.
    size_or_type: u32,
    members: &'a [u8],
}

impl<'a> Btf<'a> {
    /// Parses the types.
    pub fn parse(data: &'a [u8]) -> Result<Self, BtfError> {
        if data.first_chunk() != Some(&MAGIC.to_ne_bytes()) {
            return Err(BtfError::BadMagic);
        }
        let header_length = word(data, 4)?;
        let body = data.get(index(header_length)?..).ok_or(BtfError::Corrupt)?;
        let section = |at| {
            let start = index(word(data, at)?)?;
            let end = start.checked_add(index(word(data, at + 4)?)?).ok_or(BtfError::Corrupt)?;
            body.get(start..end).ok_or(BtfError::Corrupt)
        };
        let (types, strings) = (section(8)?, section(16)?);

        let mut offsets = Vec::with_capacity(types.len() / 24);
        let mut at = 0;
        while at < types.len() {
            let info = word(types, at + 4)?;
            let (kind, count) = (info >> 24 & 0x1f, index(info & 0xffff)?);
            let extra = match kind {
                1 | 14 | 17 => 4,                           // int, variable, declaration tag
                2 | 7..=12 | 16 | 18 => 0,                  // pointer, forward, typedef …, float, type tag
                3 => 12,                                    // array
                STRUCT | UNION | 15 | 19 => MEMBER * count, // structures, sections, 64-bit enumerations
                6 | 13 => 8 * count,                        // enumerations, function prototypes
                kind => return Err(BtfError::UnknownKind { id: id_of(offsets.len())?, kind }),
            };
            offsets.push(u32::try_from(at).map_err(|_| BtfError::Corrupt)?);
            at += TYPE + extra;
        }
        Ok(Self { types, strings, offsets })
    }

    /// Finds the structure with this name that has members.
    pub fn structure(&self, name: &str) -> Result<Structure, BtfError> {
        for position in 0..self.offsets.len() {
            let id = id_of(position)?;
            let found = self.at(id)?;
            if found.kind == STRUCT && !found.members.is_empty() && self.is_named(found.name, name) {
                return Ok(Structure { id, size: found.size_or_type });
            }
        }
        Err(BtfError::NoStruct(name.to_owned()))
    }

    /// The offset of a member in bytes. Also finds members of unnamed structures and unions inside.
    pub fn member_offset(&self, structure: Structure, name: &str) -> Result<u32, BtfError> {
        let mut visits = MAX_VISITS;
        match self.find(structure.id, name, 0, MAX_DEPTH, &mut visits)? {
            Some(bits) if bits % 8 == 0 && bits / 8 < structure.size => Ok(bits / 8),
            _ => Err(BtfError::NoMember {
                structure: self.name(self.at(structure.id)?.name).unwrap_or("?").to_owned(),
                member: name.to_owned(),
            }),
        }
    }

    /// The offset of a member in bits, from the start of the outermost structure.
    fn find(
        &self,
        id: u32,
        name: &str,
        base: u32,
        depth: usize,
        visits: &mut usize,
    ) -> Result<Option<u32>, BtfError> {
        let depth = depth.checked_sub(1).ok_or(BtfError::Corrupt)?;
        let structure = self.at(id)?;
        for member in structure.members.chunks_exact(MEMBER) {
            *visits = visits.checked_sub(1).ok_or(BtfError::Corrupt)?;
            let (member_name, member_type, position) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
            let bits = if structure.wide_offsets { position & 0xff_ffff } else { position };
            let bits = base.checked_add(bits).ok_or(BtfError::Corrupt)?;
            if self.is_named(member_name, name) {
                let is_bit_field = structure.wide_offsets && position >> 24 != 0;
                return Ok((!is_bit_field).then_some(bits));
            }
            if self.is_named(member_name, "") {
                let inner = self.without_qualifiers(member_type)?;
                if matches!(self.at(inner)?.kind, STRUCT | UNION)
                    && let Some(found) = self.find(inner, name, bits, depth, visits)?
                {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn without_qualifiers(&self, mut id: u32) -> Result<u32, BtfError> {
        for _ in 0..MAX_DEPTH {
            let found = self.at(id)?;
            if !matches!(found.kind, TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG) {
                return Ok(id);
            }
            id = found.size_or_type;
        }
        Err(BtfError::Corrupt)
    }

    fn at(&self, id: u32) -> Result<Type<'a>, BtfError> {
        let position = index(id)?.checked_sub(1).ok_or(BtfError::Corrupt)?;
        let at = index(*self.offsets.get(position).ok_or(BtfError::Corrupt)?)?;
        let info = word(self.types, at + 4)?;
        let kind = info >> 24 & 0x1f;
        let members = if matches!(kind, STRUCT | UNION) { MEMBER * index(info & 0xffff)? } else { 0 };
        Ok(Type {
            name: word(self.types, at)?,
            kind,
            wide_offsets: info >> 31 != 0,
            size_or_type: word(self.types, at + 8)?,
            members: self.types.get(at + TYPE..at + TYPE + members).ok_or(BtfError::Corrupt)?,
        })
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.strings.get(offset..));
        rest.and_then(|rest| rest.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn name(&self, offset: u32) -> Option<&'a str> {
        let rest = self.strings.get(usize::try_from(offset).ok()?..)?;
        str::from_utf8(rest.split(|byte| *byte == 0).next()?).ok()
    }
}

fn id_of(position: usize) -> Result<u32, BtfError> {
    u32::try_from(position + 1).map_err(|_| BtfError::Corrupt)
}

fn index(number: u32) -> Result<usize, BtfError> {
    usize::try_from(number).map_err(|_| BtfError::Corrupt)
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let rest = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(BtfError::Corrupt)?;
    Ok(u32::from_ne_bytes(*rest))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Writes BTF, as a compiler does.
    #[derive(Default)]
    struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
    }

    impl Writer {
        fn words(&mut self, words: &[u32]) {
            self.types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        }

        fn string(&mut self, text: &str) -> u32 {
            if self.strings.is_empty() {
                self.strings.push(0);
            }
            if text.is_empty() {
                return 0;
            }
            let at = self.strings.len();
            self.strings.extend(text.bytes().chain([0]));
            at.try_into().unwrap()
        }

        /// Adds a structure or union. Its members are (name, type, position).
        fn composite(&mut self, kind: u32, wide: bool, name: &str, size: u32, members: &[(&str, u32, u32)]) {
            let name = self.string(name);
            let info = u32::from(wide) << 31 | kind << 24 | u32::try_from(members.len()).unwrap();
            self.words(&[name, info, size]);
            for (name, id, position) in members {
                let name = self.string(name);
                self.words(&[name, *id, *position]);
            }
        }

        fn finish(&self) -> Vec<u8> {
            let [types, strings] =
                [&self.types, &self.strings].map(|part| u32::try_from(part.len()).unwrap());
            let mut data = MAGIC.to_ne_bytes().to_vec();
            data.extend([1, 0]);
            for word in [24, 0, types, types, strings] {
                data.extend(u32::to_ne_bytes(word));
            }
            data.extend(&self.types);
            data.extend(&self.strings);
            data
        }
    }

    /// struct task { int a; const struct { union { long x; int tgid; }; int odd:3, even:8; } ; int pid; }
    fn task() -> Writer {
        let mut btf = Writer::default();
        let int = btf.string("int");
        btf.words(&[int, 1 << 24, 4, 32]); // 1
        btf.words(&[0, 2 << 24, 1]); // 2: pointer
        btf.words(&[0, 3 << 24, 0, 1, 1, 5]); // 3: array
        btf.words(&[0, 6 << 24 | 1, 4, int, 7]); // 4: enumeration of one
        btf.words(&[0, 13 << 24 | 2, 1, 0, 1, 0, 1]); // 5: prototype of two
        btf.composite(UNION, false, "", 8, &[("x", 1, 0), ("tgid", 1, 0)]); // 6
        btf.composite(
            STRUCT,
            true,
            "",
            16,
            &[("", 6, 64), ("odd", 1, 3 << 24 | 3), ("even", 1, 8 << 24 | 8)],
        ); // 7
        btf.words(&[0, CONST << 24, 7]); // 8
        btf.words(&[0, 19 << 24 | 1, 8, int, 1, 2]); // 9: 64-bit enumeration of one
        btf.composite(STRUCT, false, "task", 0, &[]); // 10: as a forward declaration
        btf.composite(
            STRUCT,
            false,
            "task",
            40,
            &[("a", 1, 0), ("", 8, 64), ("pid", 1, 192), ("late", 1, 320)],
        );
        btf
    }

    #[test]
    fn members_are_found_in_unnamed_parts_too() {
        let data = task().finish();
        let btf = Btf::parse(&data).unwrap();
        let structure = btf.structure("task").unwrap();
        assert_eq!(structure.size, 40);
        for (member, offset) in [("a", 0), ("pid", 24), ("x", 16), ("tgid", 16)] {
            assert_eq!(btf.member_offset(structure, member), Ok(offset), "{member}");
        }
        for member in ["odd", "even", "late", "pi", "pid2", "task"] {
            let error = BtfError::NoMember { structure: "task".to_owned(), member: member.to_owned() };
            assert_eq!(btf.member_offset(structure, member), Err(error));
        }
        assert_eq!(btf.structure("tas"), Err(BtfError::NoStruct("tas".to_owned())));
    }

    #[test]
    fn other_data_is_refused() {
        let good = task().finish();
        assert!(matches!(Btf::parse(b""), Err(BtfError::BadMagic)));
        assert!(matches!(Btf::parse(b"\x7fELF\0\0\0\0"), Err(BtfError::BadMagic)));
        let mut swapped = good.clone();
        swapped.swap(0, 1);
        assert!(matches!(Btf::parse(&swapped), Err(BtfError::BadMagic)));
        for length in 4..good.len() {
            assert!(matches!(Btf::parse(&good[..length]), Err(BtfError::Corrupt)), "{length}");
        }
        let mut unknown = task();
        unknown.words(&[0, 31 << 24, 0]);
        let unknown = unknown.finish();
        assert_eq!(Btf::parse(&unknown).unwrap_err(), BtfError::UnknownKind { id: 12, kind: 31 });
    }

    #[test]
    fn structures_that_contain_themselves_end_the_search() {
        let mut btf = Writer::default();
        btf.composite(STRUCT, false, "loop", 8, &[("", 1, 0); 60_000]);
        btf.words(&[0, CONST << 24, 2]); // a qualifier that qualifies itself
        btf.composite(STRUCT, false, "other", 8, &[("", 2, 0)]);
        let data = btf.finish();
        let btf = Btf::parse(&data).unwrap();
        for name in ["loop", "other"] {
            let structure = btf.structure(name).unwrap();
            assert_eq!(btf.member_offset(structure, "pid"), Err(BtfError::Corrupt), "{name}");
        }
    }

    proptest! {
        /// For corrupt data, the reader gives an answer or an error, and ends.
        #[test]
        fn corrupt_data_never_panics(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut data = task().finish();
            for (index, byte) in changes {
                let index = index.index(data.len());
                data[index] = byte;
            }
            if let Ok(btf) = Btf::parse(&data)
                && let Ok(structure) = btf.structure("task")
            {
                for member in ["pid", "tgid", "odd"] {
                    if let Ok(offset) = btf.member_offset(structure, member) {
                        prop_assert!(offset < structure.size);
                    }
                }
            }
        }
    }
}
