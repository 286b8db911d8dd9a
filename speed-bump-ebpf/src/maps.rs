//! The maps. Their meaning is documented once, in `speed_bump_abi::maps`.

#[cfg(feature = "log")]
use aya_ebpf::maps::PerCpuArray;
use aya_ebpf::{
    helpers::bpf_get_smp_processor_id,
    macros::map,
    maps::{Array, HashMap, LruHashMap, RingBuf},
};
use speed_bump_abi::{
    Bucket, CallStack, CallerLineSets, CallerRange, CallerSpan, Coldness, Control, FunctionEntry,
    FunctionStats, Handshake, Histogram, Policy, PythonKey, SiteArguments, Telltale, TrampolineKey,
    maps::{
        CALLER_RANGES_CAPACITY, EVENTS_BYTES, FAULT_COUNT, Fault, HELD_BYTES, PYTHON_CAPACITY,
        TRACKED_CAPACITY,
    },
    times::FunctionTimes,
};

/// Kernel flag: allocate hash elements when they are inserted, not all at creation.
const NO_PREALLOC: u32 = aya_ebpf::bindings::BPF_F_NO_PREALLOC;
/// Kernel flag: the loader may map the elements (kernel 5.5).
const MMAPABLE: u32 = aya_ebpf::bindings::BPF_F_MMAPABLE;

#[map]
pub static CONTROL: Array<Control> = Array::with_max_entries(1, MMAPABLE);
#[map]
pub static COLDNESS: Array<Coldness> = Array::with_max_entries(Coldness::WAYS as u32, 0);
#[map]
pub static TELLTALE: Array<Telltale> = Array::with_max_entries(1, 0);
#[map]
pub static POLICIES: Array<Policy> = Array::with_max_entries(Policy::ROWS, MMAPABLE);
#[map]
pub static COUNTERS: Array<u64> = Array::with_max_entries(1, 0);
#[map]
pub static SITES: Array<SiteArguments> = Array::with_max_entries(1, 0);
#[map]
pub static FUNCTIONS: Array<FunctionEntry> = Array::with_max_entries(1, MMAPABLE);
#[map]
static STATS: Array<FunctionStats> = Array::with_max_entries(1, MMAPABLE);
#[map]
pub static HISTOGRAMS: Array<Histogram> = Array::with_max_entries(1, MMAPABLE);
#[map]
pub static HISTOGRAMS_TAKEN: Array<u64> = Array::with_max_entries(1, 0);
#[map]
pub static TIMES: Array<FunctionTimes> = Array::with_max_entries(1, MMAPABLE);
#[map]
pub static CALLS: LruHashMap<u64, CallStack> = LruHashMap::with_max_entries(1, 0);
#[map]
pub static NO_CALLS: Array<CallStack> = Array::with_max_entries(1, 0);
#[map]
pub static BUCKETS: LruHashMap<u64, Bucket> = LruHashMap::with_max_entries(1, 0);
#[map]
pub static CALLER_RANGES: Array<CallerRange> = Array::with_max_entries(CALLER_RANGES_CAPACITY, 0);
#[map]
pub static CALLER_SPANS: HashMap<u32, CallerSpan> = HashMap::with_max_entries(TRACKED_CAPACITY, 0);
#[map]
pub static CALLER_PROCESSES: HashMap<u32, u32> = HashMap::with_max_entries(TRACKED_CAPACITY, 0);
#[map]
pub static CALLER_LINES: Array<CallerLineSets> = Array::with_max_entries(1, 0);
#[map]
pub static TRAMPOLINES: HashMap<TrampolineKey, u32> = HashMap::with_max_entries(1, NO_PREALLOC);
#[map]
pub static PYTHON_KEYS: HashMap<PythonKey, u32> = HashMap::with_max_entries(PYTHON_CAPACITY, NO_PREALLOC);
#[map]
pub static PYTHON_VERDICTS: Array<u32> = Array::with_max_entries(PYTHON_CAPACITY, 0);
#[map]
pub static PYTHON_PENDING: Array<u64> = Array::with_max_entries(PYTHON_CAPACITY, 0);
#[map]
pub static TRACKED: HashMap<u32, u8> = HashMap::with_max_entries(TRACKED_CAPACITY, 0);
#[map]
pub static HANDSHAKES: HashMap<u32, Handshake> = HashMap::with_max_entries(TRACKED_CAPACITY, 0);
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(EVENTS_BYTES, 0);
#[map]
pub static HELD: RingBuf = RingBuf::with_byte_size(HELD_BYTES, 0);
#[map]
pub static HOLDERS: Array<u64> = Array::with_max_entries(1, 0);
#[map]
static FAULTS: Array<u64> = Array::with_max_entries(FAULT_COUNT, 0);
#[cfg(feature = "log")]
#[map]
pub static LOG_LIMITS: PerCpuArray<speed_bump_abi::RateLimit> =
    PerCpuArray::with_max_entries(speed_bump_abi::NotDelayed::COUNT, 0);

/// How many processors there can be.
#[unsafe(no_mangle)]
static PROCESSORS: u32 = 1;

/// What is counted of a function on this processor.
#[inline(always)]
pub fn stats(function: u32) -> Option<*mut FunctionStats> {
    // SAFETY: a constant of this object; the loader may have replaced its value. The helper has no
    // preconditions.
    let (processors, processor) =
        unsafe { (core::ptr::read_volatile(&raw const PROCESSORS), bpf_get_smp_processor_id()) };
    STATS.get_ptr_mut(FunctionStats::position(function, processors, processor))
}

/// Counts something that went wrong.
#[inline(always)]
pub fn fault(fault: Fault) {
    faults(fault, 1);
}

/// Counts something that went wrong `count` times.
#[inline(always)]
pub fn faults(fault: Fault, count: u64) {
    if let Some(counter) = FAULTS.get_ptr_mut(fault as u32) {
        crate::count::add(counter, count);
    }
}
