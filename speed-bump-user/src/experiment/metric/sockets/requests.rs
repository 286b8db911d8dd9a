//! Counts of requests: until a time, and between two times.

use std::sync::atomic::{AtomicU64, Ordering};

use speed_bump_abi::{
    self as abi, Latencies,
    requests::{PORT_WORDS, PROCESS_WORDS, bit_of, maps},
};

use super::{SocketsError, programs::Programs};
use crate::{
    engine::bpf::processors,
    experiment::metric::latencies::{LatencyCounts, between, quantile},
    sys::{clock::now, mapped_words::MappedWords},
    units::{Nanos, Pid},
};

/// Maps that are mapped into the tool's memory.
#[derive(Debug)]
pub(super) struct Counts {
    requests: MappedWords,
    ports: MappedWords,
    processes: MappedWords,
    threads: MappedWords,
}

impl Counts {
    pub(super) fn open(programs: &Programs) -> Result<Self, SocketsError> {
        let words = abi::Requests::WORDS * processors() as usize;
        Ok(Self {
            requests: programs.words(maps::REQUESTS, words)?,
            ports: programs.words(maps::PORTS, PORT_WORDS as usize)?,
            processes: programs.words(maps::PROCESSES, PROCESS_WORDS as usize)?,
            threads: programs.words(maps::THREADS, PROCESS_WORDS as usize)?,
        })
    }

    /// Adds a listening port.
    pub(super) fn add_port(&self, port: u16) {
        let (word, bit) = bit_of(u32::from(port));
        if let Some(bits) = self.ports.all().get(word as usize) {
            bits.fetch_or(bit, Ordering::Release);
        }
    }

    /// Sets whether a process belongs to the service.
    pub(super) fn set_process(&self, process: Pid, is_of_service: bool) {
        let (word, bit) = bit_of(process.get().unsigned_abs());
        if let Some(bits) = self.processes.all().get(word as usize) {
            if is_of_service {
                bits.fetch_or(bit, Ordering::Release);
            } else {
                bits.fetch_and(!bit, Ordering::Release);
            }
        }
    }

    /// Whether a thread has answered a request.
    pub(super) fn has_answered(&self, thread: Pid) -> bool {
        let (word, bit) = bit_of(thread.get().unsigned_abs());
        let bits = self.threads.all().get(word as usize);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn read(&self) -> Reading {
        Reading { at: now(), counts: sum(self.requests.all()) }
    }
}

/// Adds up the counts of all processors.
fn sum(words: &[AtomicU64]) -> abi::Requests {
    let mut sums = [0_u64; abi::Requests::WORDS];
    for of_processor in words.chunks_exact(abi::Requests::WORDS) {
        for (sum, word) in sums.iter_mut().zip(of_processor) {
            *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
    }
    abi::Requests::from_words(&sums)
}

/// The counts since the programs were attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When reading began (`CLOCK_MONOTONIC`). The counts include all answers whose send had returned by
    /// then.
    pub at: Nanos,
    counts: abi::Requests,
}

impl Reading {
    /// Answered requests.
    pub fn answered(&self) -> u64 {
        self.counts.answered
    }

    /// Requests without an answer so far. A reading during a change may be off by one. A request on a unix
    /// connection that was closed without an answer stays included.
    pub fn in_flight(&self) -> u64 {
        let abi::Requests { received, answered, abandoned, .. } = self.counts;
        received.saturating_sub(answered).saturating_sub(abandoned)
    }

    /// The requests since an earlier reading of the same sockets.
    pub fn since(&self, earlier: &Self) -> Requests {
        let (now, then) = (&self.counts, &earlier.counts);
        let latencies = between(&then.latencies, &now.latencies);
        Requests {
            over: Nanos(self.at.0.saturating_sub(earlier.at.0)),
            answered: now.answered.saturating_sub(then.answered),
            latency: Nanos(now.latency_ns.saturating_sub(then.latency_ns)),
            abandoned: now.abandoned.saturating_sub(then.abandoned),
            abandoned_after: Nanos(now.abandoned_ns.saturating_sub(then.abandoned_ns)),
            in_flight: self.in_flight(),
            connections: now.connections.saturating_sub(then.connections),
            more_receives: now.more_receives.saturating_sub(then.more_receives),
            more_sends: now.more_sends.saturating_sub(then.more_sends),
            no_room: now.no_room.saturating_sub(then.no_room),
            failed: now.failed.saturating_sub(then.failed),
            latencies,
        }
    }
}

/// Counts of a span of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requests {
    /// The span.
    pub over: Nanos,
    /// Requests answered in it.
    pub answered: u64,
    /// The sum of their latencies, including the time before the span.
    pub latency: Nanos,
    /// Requests whose TCP connection was closed before an answer was sent.
    pub abandoned: u64,
    /// How long the abandoned requests had waited, in total.
    pub abandoned_after: Nanos,
    /// Requests without an answer at the end of the span.
    pub in_flight: u64,
    /// Connections that were used for the first time.
    pub connections: u64,
    /// Receives while a request had no answer yet: the rest of a long one, or more requests (pipelining).
    pub more_receives: u64,
    /// Sends without a waiting request: the rest of an answer, or streaming.
    pub more_sends: u64,
    /// Receives and sends that were not counted, because the kernel had no memory for their connection.
    pub no_room: u64,
    /// Answered requests that failed: the HTTP/1 status is 5xx, 408 or 429.
    pub failed: u64,
    /// Answered requests by latency.
    latencies: Latencies,
}

impl Requests {
    /// Answered requests per second.
    pub fn per_second(&self) -> f64 {
        if self.over.0 == 0 { 0.0 } else { self.answered as f64 * 1e9 / self.over.0 as f64 }
    }

    /// The mean latency; `None` without answered requests.
    pub fn mean(&self) -> Option<Nanos> {
        self.latency.0.checked_div(self.answered).map(Nanos)
    }

    /// The latency that this share of the requests (0 to 1) had at most, exact to 3.1 % between 1 us and 133
    /// s; `None` without answered requests.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        quantile(&self.latencies, share)
    }

    /// Answered requests by latency.
    pub fn latencies(&self) -> LatencyCounts {
        LatencyCounts::new(&self.latencies)
    }

    /// The mean number of requests in progress, by Little's law: the sum of latencies divided by the time.
    /// Right if latencies are short compared with the span.
    ///
    /// Below 1, there was no request for at least the rest of the time. Then the service waits for requests,
    /// so a delay changes its latency and not its throughput (an open loop).
    pub fn mean_in_flight(&self) -> f64 {
        let waited = self.latency.0.saturating_add(self.abandoned_after.0);
        if self.over.0 == 0 { 0.0 } else { waited as f64 / self.over.0 as f64 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// A reading after requests with these latencies in ns.
    fn reading(at: u64, latencies_ns: &[u64]) -> Reading {
        let mut counts = abi::Requests {
            received: latencies_ns.len() as u64,
            answered: latencies_ns.len() as u64,
            latency_ns: latencies_ns.iter().sum(),
            ..abi::Requests::default()
        };
        for ns in latencies_ns {
            counts.latencies.buckets[Latencies::bucket(*ns)] += 1;
        }
        Reading { at: Nanos(at), counts }
    }

    #[test]
    fn a_span_has_the_requests_in_it() {
        let early = reading(1_000_000_000, &[7_000; 3]);
        let mut late = reading(3_000_000_000, &[&[7_000; 3][..], &[1_000_000; 100]].concat());
        late.counts.received += 2;
        late.counts.more_sends = 5;
        let span = late.since(&early);
        assert_eq!((span.over, span.answered, span.latency), (Nanos(2_000_000_000), 100, Nanos(100_000_000)));
        assert_eq!((span.in_flight, span.more_sends, span.abandoned), (2, 5, 0));
        assert_eq!((span.per_second(), span.mean()), (50.0, Some(Nanos(1_000_000))));
        assert_eq!(span.mean_in_flight(), 0.05);
        let nothing = late.since(&late);
        assert_eq!((nothing.mean(), nothing.quantile(0.5), nothing.per_second()), (None, None, 0.0));
    }

    #[test]
    fn quantiles_are_within_a_thirtieth() {
        let latencies: Vec<u64> = (1..=1000).map(|ms| ms * 1_000_000).collect();
        let span = reading(9, &latencies).since(&reading(1, &[]));
        for (share, ms) in
            [(0.0, 1.0), (0.001, 1.0), (0.5, 500.0), (0.99, 990.0), (1.0, 1000.0), (7.0, 1000.0)]
        {
            let found = span.quantile(share).unwrap().0 as f64 / 1e6;
            assert!((found / ms - 1.0).abs() < 0.0323, "{share}: {found} for {ms}");
        }
        let long = reading(9, &[u64::MAX / 2]).since(&reading(1, &[]));
        assert_eq!(long.quantile(0.5), Some(Nanos(133_143_986_176)));
    }

    #[test]
    fn counts_of_processors_add_up() {
        let words: Vec<AtomicU64> = (0..2 * abi::Requests::WORDS as u64).map(AtomicU64::new).collect();
        let counts = sum(&words);
        let of_each = abi::Requests::WORDS as u64;
        assert_eq!((counts.connections, counts.answered), (of_each, of_each + 4));
        assert_eq!(sum(&[]), abi::Requests::default());
    }
}
