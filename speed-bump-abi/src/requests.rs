//! Requests that a service answers on its sockets: what the BPF programs count of them, and in which form.

/// Names of the maps in the object, and their sizes.
pub mod maps {
    /// A bit for each process id (thread-group id) as the initial PID namespace numbers it, by
    /// [`bit_of`](super::bit_of): the service's processes. The loader maps it.
    pub const PROCESSES: &str = "PROCESSES";
    /// A bit for each thread id, in this form: threads that have answered a request. The loader maps it.
    pub const THREADS: &str = "THREADS";
    /// A bit for each TCP port, in this form: ports that the service listens on. The loader maps it.
    pub const PORTS: &str = "PORTS";
    /// `u8` by [`UnixName`](super::UnixName): the names of unix sockets that the service listens on.
    pub const NAMES: &str = "NAMES";
    /// [`Requests`](super::Requests) by processor. The loader maps it.
    pub const REQUESTS: &str = "REQUESTS";

    /// Capacity of [`NAMES`].
    pub const NAMES_CAPACITY: u32 = 256;
}

/// The number of words that hold a bit for each TCP port.
pub const PORT_WORDS: u32 = (1 << 16) / u64::BITS;
/// Words of a bit for each process id, or thread id: they are below `PID_MAX_LIMIT`
/// (include/linux/threads.h), 4 Mi. Half a MiB. A look-up takes the programs two instructions; in a hash map
/// it would take 20 ns.
pub const PROCESS_WORDS: u32 = (1 << 22) / u64::BITS;

/// The word that has a number's bit, and the bit.
#[inline(always)]
pub const fn bit_of(number: u32) -> (u32, u64) {
    (number / u64::BITS, 1 << (number % u64::BITS))
}

/// What a unix socket is bound to, as the kernel has it: a path, or a zero byte and an abstract name. Zeros
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct UnixName(pub [u8; Self::BYTES]);

impl UnixName {
    /// More than `sun_path` has (108, include/uapi/linux/un.h), and a power of two.
    pub const BYTES: usize = 128;
}

/// What was counted of a service's requests; in BPF of those on one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Requests {
    /// Accepted connections that were used for the first time.
    pub connections: u64,
    /// Requests that were received, in full or in part.
    pub received: u64,
    /// Requests that were answered: something was sent on the connection.
    pub answered: u64,
    /// The sum of their latencies.
    pub latency_ns: u64,
    /// Requests whose TCP connection was gone before anything was sent.
    pub abandoned: u64,
    /// The sum of the times that the abandoned requests had waited.
    pub abandoned_ns: u64,
    /// Receives while a request was not answered yet: the rest of a long one, or the next ones (pipelining).
    pub more_receives: u64,
    /// Sends with no request waiting: the rest of an answer, or data without a request.
    pub more_sends: u64,
    /// Receives and sends of connections that the kernel had no memory for: not counted.
    pub no_room: u64,
    /// Answered requests whose answer says over HTTP/1 that they failed: its status is 5xx, 408 or 429.
    pub failed: u64,
    /// Answered requests by latency.
    pub latencies: Latencies,
}

impl Requests {
    /// The number of words.
    pub const WORDS: usize = size_of::<Self>() / size_of::<u64>();

    /// From its words, in their order.
    pub fn from_words(words: &[u64; Self::WORDS]) -> Self {
        let mut latencies = Latencies::default();
        let (counts, buckets) = words.split_at(Self::WORDS - Latencies::BUCKETS);
        latencies.buckets.iter_mut().zip(buckets).for_each(|(to, from)| *to = *from);
        let mut counts = counts.iter().copied();
        let mut next = || counts.next().unwrap_or(0);
        Self {
            connections: next(),
            received: next(),
            answered: next(),
            latency_ns: next(),
            abandoned: next(),
            abandoned_ns: next(),
            more_receives: next(),
            more_sends: next(),
            no_room: next(),
            failed: next(),
            latencies,
        }
    }
}

/// A log-linear histogram of times: sixteen buckets to a doubling, so that the middle of one is within 3.1 %
/// of everything in it, from 1 us to 133 s. Below, a bucket has 64 ns. The last has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Latencies {
    /// Counts.
    pub buckets: [u64; Self::BUCKETS],
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: [0; Self::BUCKETS] }
    }
}

impl Latencies {
    /// Buckets of a doubling, and of the linear part before the first.
    const PLACES: usize = 16;
    const PLACES_BITS: u32 = 4;
    const DOUBLINGS: usize = 27;
    /// The number of buckets.
    pub const BUCKETS: usize = Self::PLACES + Self::DOUBLINGS * Self::PLACES;
    /// The width of the first buckets: 64 ns.
    const UNIT_BITS: u32 = 6;

    /// The bucket of a time.
    #[inline(always)]
    pub const fn bucket(ns: u64) -> usize {
        let units = ns >> Self::UNIT_BITS;
        if units < Self::PLACES as u64 {
            return units as usize;
        }
        let doubling = u64::BITS - 1 - Self::PLACES_BITS - units.leading_zeros();
        let place = (units >> doubling) as usize % Self::PLACES;
        let bucket = Self::PLACES + doubling as usize * Self::PLACES + place;
        if bucket < Self::BUCKETS { bucket } else { Self::BUCKETS - 1 }
    }

    /// The bounds of a bucket: the first time that is in it, and the first that is not. Nothing is beyond the
    /// last.
    pub const fn bounds_ns(bucket: usize) -> (u64, u64) {
        if bucket < Self::PLACES {
            return ((bucket as u64) << Self::UNIT_BITS, (bucket as u64 + 1) << Self::UNIT_BITS);
        }
        let (doubling, place) = ((bucket / Self::PLACES - 1) as u32, bucket % Self::PLACES);
        let shift = doubling + Self::UNIT_BITS;
        let from = ((Self::PLACES + place) as u64) << shift;
        (from, if bucket + 1 < Self::BUCKETS { from + (1 << shift) } else { u64::MAX })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// Times from 0 to the longest: each of the first, and some of each magnitude.
    fn times() -> impl Iterator<Item = u64> {
        let doublings = (0..63).flat_map(|doubling| {
            let step = (1_u64 << doubling) / 97 + 1;
            (0..97).map(move |number| (1 << doubling) + number * step)
        });
        (0..5_000).chain(doublings).chain([u64::MAX - 1, u64::MAX])
    }

    #[test]
    fn every_time_is_in_the_bucket_whose_bounds_it_has() {
        for ns in times() {
            let (from, to) = Latencies::bounds_ns(Latencies::bucket(ns));
            assert!(from <= ns && (ns < to || to == u64::MAX), "{ns} in {from}..{to}");
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!(Latencies::bounds_ns(0).0, 0);
        for bucket in 1..Latencies::BUCKETS {
            assert_eq!(Latencies::bounds_ns(bucket - 1).1, Latencies::bounds_ns(bucket).0, "{bucket}");
        }
        assert_eq!(Latencies::bounds_ns(Latencies::BUCKETS - 1), (133_143_986_176, u64::MAX));
    }

    #[test]
    fn the_middle_of_a_bucket_is_near_everything_in_it() {
        for bucket in 16..Latencies::BUCKETS - 1 {
            let (from, to) = Latencies::bounds_ns(bucket);
            assert!((to - from) * 500 <= from * 32, "{from}..{to}: half a bucket in thousandths");
        }
    }

    #[test]
    fn each_number_has_a_bit_of_its_own() {
        let mut bits: Vec<_> = (0..1 << 16).map(bit_of).collect();
        assert!(bits.iter().all(|(word, bit)| *word < PORT_WORDS && bit.is_power_of_two()));
        bits.sort_unstable();
        bits.dedup();
        assert_eq!(bits.len(), 1 << 16);
        assert_eq!(bit_of((1 << 22) - 1), (PROCESS_WORDS - 1, 1 << 63));
    }

    #[test]
    fn words_become_what_they_stand_for() {
        let mut words = [0; Requests::WORDS];
        words.iter_mut().zip(1..).for_each(|(word, number)| *word = number);
        let requests = Requests::from_words(&words);
        assert_eq!((requests.connections, requests.latency_ns, requests.no_room), (1, 4, 9));
        assert_eq!(requests.failed, 10);
        assert_eq!((requests.latencies.buckets[0], requests.latencies.buckets[447]), (11, 458));
    }
}
