//! Messages over LTP.
#![allow(clippy::disallowed_types, reason = "it is no part of the crate")]

use std::io;
use std::ops::Range;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use tweed_net::ltp::{Cipher, DatagramOptions, Datagrams, Handler, PacketMessage};
use tweed_proto::ltp::Outgoing;

use crate::job::{timed, Far, Job, Near};
use crate::{Control, Failure};

/// What the driver reports; memory that has been used is used again.
struct Inbox {
    notices: Sender<Notice>,
    memory: Mutex<Vec<Vec<u8>>>,
}

enum Notice {
    Received,
    Delivered { missing_bytes: u64 },
    Broken(String),
}

impl Handler for Inbox {
    fn buffer(&self, bytes: usize) -> Vec<u8> {
        let kept = self.memory.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.filter(|memory| memory.len() == bytes).unwrap_or_else(|| vec![1; bytes])
    }

    fn received(&self, _peer: usize, packet_message: PacketMessage) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).push(packet_message.body);
        // Nobody listens any more once the job is done.
        let _ = self.notices.send(Notice::Received);
    }

    fn delivered(&self, _peer: usize, _ticket: u64, missing: Vec<Range<u32>>) {
        let missing_bytes = missing.iter().map(|range| u64::from(range.end - range.start)).sum();
        let _ = self.notices.send(Notice::Delivered { missing_bytes });
    }

    fn broken(&self, _peer: usize, why: String) {
        let _ = self.notices.send(Notice::Broken(why));
    }
}

pub(crate) fn send(job: &Job, control: &mut Control) -> Result<Near, Failure> {
    let (datagrams, notices) = open(job, control)?;
    let body = vec![1u8; job.bytes as usize];
    let mut missing_bytes = 0;
    let (calls_s, cpu_s) = timed(job, |i| {
        let Job { bytes, lossy, .. } = *job;
        let what = Outgoing {
            round: i as u32,
            tag: [0; 48],
            bytes,
            value: 4,
            critical: Vec::new(),
            lossy,
            urgency: 0,
        };
        // SAFETY: `body` outlives the driver, which is closed below.
        unsafe { datagrams.send(0, what, body.as_ptr(), i as u64) };
        match notices.recv() {
            Ok(Notice::Delivered { missing_bytes: missing }) => {
                missing_bytes += if i < job.warm { 0 } else { missing };
                Ok(())
            }
            Ok(Notice::Broken(why)) => Err(io::Error::other(why)),
            Ok(Notice::Received) | Err(_) => Err(io::Error::other("the driver said something else")),
        }
    })?;
    let metrics = datagrams.metrics(0).unwrap_or_default();
    datagrams.close();
    control.send(&true)?;
    let (sent_packets, lost_packets) = (metrics.sent_packets, metrics.lost_packets);
    Ok(Near { calls_s, cpu_s, missing_bytes, sent_packets, lost_packets, packet_bytes: metrics.payload })
}

pub(crate) fn receive(job: &Job, control: &mut Control) -> Result<Far, Failure> {
    let (datagrams, notices) = open(job, control)?;
    let (_, cpu_s) = timed(job, |_| match notices.recv() {
        Ok(Notice::Broken(why)) => Err(io::Error::other(why)),
        other => other.map(|_| ()).map_err(io::Error::other),
    })?;
    // Until the sender knows that the last message is here, the driver must go on.
    let _done: bool = control.receive()?;
    datagrams.close();
    Ok(Far { cpu_s })
}

/// Opens a driver on the address of the control stream, and swaps invitations with the other side.
fn open(job: &Job, control: &mut Control) -> Result<(Arc<Datagrams>, Receiver<Notice>), Failure> {
    let cipher = match job.cipher.as_str() {
        "aes" => Cipher::Aes128Gcm,
        "chacha" => Cipher::ChaCha20Poly1305,
        "clear" => Cipher::Clear,
        other => return Err(format!("there is no cipher {other:?}").into()),
    };
    let (notices, received) = channel();
    let inbox = Arc::new(Inbox { notices, memory: Mutex::default() });
    let (near, far) = (control.stream.local_addr()?.ip(), control.stream.peer_addr()?.ip());
    let options = DatagramOptions { cipher, ..DatagramOptions::default() };
    let datagrams = Datagrams::open(near, options, inbox)?;
    control.send(&datagrams.invite(0))?;
    let invitation: Vec<u8> = control.receive()?;
    datagrams.accept(0, far, &invitation)?;
    Ok((datagrams, received))
}
