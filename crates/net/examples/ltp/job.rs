//! What is measured, and what came of it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What to do; both roles are told the same.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The transport, "ltp" or "tcp".
    pub(crate) transport: String,
    /// "aes", "chacha" or "clear"; only for LTP.
    #[serde(default)]
    pub(crate) cipher: String,
    /// The bytes of one message.
    pub(crate) bytes: u32,
    /// Messages that are measured.
    pub(crate) repeats: usize,
    /// Messages before, which are not.
    #[serde(default = "three")]
    pub(crate) warm: usize,
    /// Parts may stay lost; only for LTP.
    #[serde(default)]
    pub(crate) lossy: bool,
}

fn three() -> usize {
    3
}

/// What the sender saw.
#[derive(Default)]
pub(crate) struct Near {
    /// Seconds of each message until it was known to be there, in order.
    pub(crate) calls_s: Vec<f64>,
    pub(crate) cpu_s: f64,
    pub(crate) missing_bytes: u64,
    pub(crate) sent_packets: u64,
    pub(crate) lost_packets: u64,
    pub(crate) packet_bytes: u32,
}

/// What the receiver saw.
#[derive(Serialize, Deserialize)]
pub(crate) struct Far {
    pub(crate) cpu_s: f64,
}

/// Times `repeats` calls, after those that warm up. Returns seconds of each, and CPU seconds of all.
pub(crate) fn timed(
    job: &Job,
    mut call: impl FnMut(usize) -> std::io::Result<()>,
) -> std::io::Result<(Vec<f64>, f64)> {
    for i in 0..job.warm {
        call(i)?;
    }
    let before = cpu();
    let mut calls_s = Vec::with_capacity(job.repeats);
    for i in 0..job.repeats {
        let began = Instant::now();
        call(job.warm + i)?;
        calls_s.push(began.elapsed().as_secs_f64());
    }
    Ok((calls_s, (cpu() - before).as_secs_f64()))
}

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    // SAFETY: all zeros are a value of this plain struct, and the pointer is to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let span = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// The line that is printed.
pub(crate) fn report(job: &Job, near: &Near, far: &Far) -> serde_json::Value {
    let mut sorted = near.calls_s.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted[((sorted.len() as f64 * share).ceil() as usize).max(1) - 1];
    let total = f64::from(job.bytes) * job.repeats as f64;
    serde_json::json!({
        "transport": job.transport,
        "cipher": job.cipher,
        "lossy": job.lossy,
        "bytes": job.bytes,
        "calls": job.repeats,
        "calls_s": near.calls_s,
        "median_s": at(0.5),
        "p99_s": at(0.99),
        "bits_per_s": 8.0 * f64::from(job.bytes) / at(0.5),
        "cpu_s_per_gb": {"sender": near.cpu_s / total * 1e9, "receiver": far.cpu_s / total * 1e9},
        "sent_packets": near.sent_packets,
        "lost_packets": near.lost_packets,
        "packet_bytes": near.packet_bytes,
        "delivered_share": 1.0 - near.missing_bytes as f64 / total,
    })
}
