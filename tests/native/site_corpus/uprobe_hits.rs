//! Counts hits of uprobes with the least machinery: one BPF program that adds to an array, and one
//! `uprobe_multi` link. It shares nothing with the tool's own way of attaching, which it is to check.

use std::{
    ffi::CString,
    io,
    mem::{size_of, size_of_val, zeroed},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
const BPF_TRACE_UPROBE_MULTI: u32 = 48;
const LOOKUP_ELEM: i32 = 1;
const GET_ATTACH_COOKIE: i32 = 174;

/// `struct bpf_insn`.
#[repr(C)]
struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

fn insn(code: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> Insn {
    Insn { code, registers: dst | (src << 4), offset, immediate }
}

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

/// The head of `union bpf_attr` for `BPF_MAP_LOOKUP_ELEM`.
#[repr(C)]
struct MapLookup {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`.
#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The head of `union bpf_attr` for `BPF_LINK_CREATE` with `uprobe_multi`.
#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    padding: u32,
}

/// Uprobes that count; dropping detaches them.
pub(crate) struct Hits {
    map: OwnedFd,
    count: u32,
    _program: OwnedFd,
    _link: OwnedFd,
}

impl Hits {
    /// Attaches at offsets of a file, in one process. Slot `i` counts the hits at `offsets[i]`.
    pub(crate) fn attach(path: &Path, pid: u32, offsets: &[u64]) -> io::Result<Self> {
        let count = u32::try_from(offsets.len()).map_err(io::Error::other)?;
        let map = create(
            BPF_MAP_CREATE,
            &MapCreate { map_type: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size: 8, max_entries: count },
        )?;
        let program = load(&map)?;
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let cookies: Vec<u64> = (0..u64::from(count)).collect();
        let link = create(
            BPF_LINK_CREATE,
            &LinkCreate {
                prog_fd: number(&program),
                target_fd: 0,
                attach_type: BPF_TRACE_UPROBE_MULTI,
                flags: 0,
                path: path.as_ptr() as u64,
                offsets: offsets.as_ptr() as u64,
                ref_ctr_offsets: 0,
                cookies: cookies.as_ptr() as u64,
                cnt: count,
                multi_flags: 0,
                pid,
                padding: 0,
            },
        )?;
        Ok(Self { map, count, _program: program, _link: link })
    }

    /// The hits so far, in the order of the offsets.
    pub(crate) fn counts(&self) -> io::Result<Vec<u64>> {
        (0..self.count)
            .map(|key| {
                let mut value = 0_u64;
                let attr = MapLookup {
                    map_fd: number(&self.map),
                    padding: 0,
                    key: (&raw const key) as u64,
                    value: (&raw mut value) as u64,
                    flags: 0,
                };
                bpf(BPF_MAP_LOOKUP_ELEM, &attr)?;
                Ok(value)
            })
            .collect()
    }
}

/// Loads: `slot = cookie; if (p = lookup(map, &slot)) atomic_add(p, 1); return 0`.
fn load(map: &OwnedFd) -> io::Result<OwnedFd> {
    let program = [
        insn(0x85, 0, 0, 0, GET_ATTACH_COOKIE),
        insn(0x63, 10, 0, -4, 0),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -4),
        insn(0x18, 1, 1, 0, map.as_raw_fd()),
        insn(0, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, LOOKUP_ELEM),
        insn(0x15, 0, 0, 2, 0),
        insn(0xb7, 1, 0, 0, 1),
        insn(0xdb, 0, 1, 0, 0),
        insn(0xb7, 0, 0, 0, 0),
        insn(0x95, 0, 0, 0, 0),
    ];
    // SAFETY: the structure is of integers alone, for which zero is a value.
    let mut attr: ProgLoad = unsafe { zeroed() };
    attr.prog_type = BPF_PROG_TYPE_KPROBE;
    attr.insn_cnt = u32::try_from(program.len()).map_err(io::Error::other)?;
    attr.insns = program.as_ptr() as u64;
    attr.license = c"GPL".as_ptr() as u64;
    attr.expected_attach_type = BPF_TRACE_UPROBE_MULTI;
    create(BPF_PROG_LOAD, &attr)
}

fn create<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attr)?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the commands that create return a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<libc::c_long> {
    // The kernel takes a structure shorter than its own, not one that it would read past the end of.
    const { assert!(size_of::<T>().is_multiple_of(8)) }
    // SAFETY: `attr` is as long as said, and the addresses in it are of values that outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of_val(attr)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}
