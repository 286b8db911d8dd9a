//! The maps. Their meaning is documented once, in `speed_bump_abi::requests::maps`.

use aya_ebpf::{
    btf_maps::SkStorage,
    helpers::bpf_get_smp_processor_id,
    macros::{btf_map, map},
    maps::{Array, HashMap},
};
use speed_bump_abi::{
    Requests, UnixName,
    requests::{PORT_WORDS, PROCESS_WORDS, bit_of, maps::NAMES_CAPACITY},
};

use crate::connection::Connection;

/// Kernel flag: the loader may map the elements (kernel 5.5).
const MMAPABLE: u32 = aya_ebpf::bindings::BPF_F_MMAPABLE;

#[map]
pub static PROCESSES: Array<u64> = Array::with_max_entries(PROCESS_WORDS, MMAPABLE);
#[map]
pub static THREADS: Array<u64> = Array::with_max_entries(PROCESS_WORDS, MMAPABLE);
#[map]
pub static PORTS: Array<u64> = Array::with_max_entries(PORT_WORDS, MMAPABLE);
#[map]
pub static NAMES: HashMap<UnixName, u8> = HashMap::with_max_entries(NAMES_CAPACITY, 0);
#[map]
static REQUESTS: Array<Requests> = Array::with_max_entries(1, MMAPABLE);
/// The state of each counted socket. It ends with the socket.
#[btf_map]
pub static CONNECTIONS: SkStorage<Connection> = SkStorage::new();

/// What is counted on this processor.
#[inline(always)]
pub fn counts() -> Option<*mut Requests> {
    // SAFETY: the helper has no preconditions.
    REQUESTS.get_ptr_mut(unsafe { bpf_get_smp_processor_id() })
}

/// Whether a number's bit is set.
#[inline(always)]
pub fn has(bits: &Array<u64>, number: u32) -> bool {
    let (word, bit) = bit_of(number);
    // SAFETY: a live map value, which the loader may be changing.
    bits.get_ptr(word).is_some_and(|bits| unsafe { bits.read_volatile() } & bit != 0)
}

/// Sets a number's bit. Where two processors set bits of one word at once, one of the two may be lost, until
/// it is set again.
#[inline(always)]
pub fn set(bits: &Array<u64>, number: u32) {
    let (word, bit) = bit_of(number);
    let Some(bits) = bits.get_ptr_mut(word) else { return };
    // SAFETY: a live map value.
    let known = unsafe { bits.read_volatile() };
    // The bit seldom changes, and other processors read the word all the time. So we write only changes.
    if known & bit == 0 {
        // SAFETY: as above.
        unsafe { bits.write_volatile(known | bit) };
    }
}
