//! The loop: takes frames, asks [`Links`], waits, sends. One thread, busy only while there are frames.
// This file drives what is pure: it has the clock and the files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime};

use libc::c_int;

use crate::links::Links;
use crate::path::{Path, QueuedFrame};
use crate::settings::{Report, Request, Settings};
use crate::socket::{hurry, interface, wait, Landing, Port, Socket, BATCH};

/// Largest frame: one Ethernet packet, or the most that segmentation offloads make of many.
const WHOLE: usize = 2048;
const OFFLOADED: usize = (1 << 16) + 256;
/// A frame was never longer under way to here: what the stamps say above that is a clock that was set.
const MOST_LATE: Duration = Duration::from_millis(500);
/// Sockets that all ports share, below what a process may open unasked.
const MOST_SOCKETS: usize = 700;
/// Batches that are taken before what is due is sent.
const TURN: usize = 8;

/// Emulates links between the ports of this network namespace, until `requests` ends.
///
/// `settings` is a JSON [`Settings`]. The first line of `answers` comes when it stands, and then one for each
/// [`Request`]: a JSON [`Report`].
///
/// # Errors
/// Settings or requests that cannot be read, an interface that is not there, a right that is missing.
pub fn serve(settings: &str, requests: File, answers: File) -> io::Result<()> {
    let settings: Settings = serde_json::from_str(settings)?;
    let mut emulator = Emulator::open(settings)?;
    let mut requests = Requests { incoming: requests, answers, read: Vec::new() };
    hurry();
    requests.answer(&emulator.report()?)?;
    loop {
        let limit = emulator.path.next_timeout().map(|at| at.saturating_sub(emulator.now()));
        if emulator.moved {
            // A wake-up for each packet would cost more than the packet: let some gather.
            std::thread::sleep(emulator.path.links.grain());
        }
        match wait(&emulator.listening, requests.incoming.as_raw_fd(), limit) {
            Ok(true) if !requests.serve(&mut emulator)? => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => emulator.turn()?,
        }
    }
}

/// Where requests come in and answers go out.
struct Requests {
    incoming: File,
    answers: File,
    /// What was read and is no whole line yet.
    read: Vec<u8>,
}

impl Requests {
    /// Reads once and answers every whole line; false at the end of requests.
    fn serve(&mut self, emulator: &mut Emulator) -> io::Result<bool> {
        let mut some = [0; 1 << 16];
        let length = self.incoming.read(&mut some)?;
        self.read.extend_from_slice(&some[..length]);
        while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.read.drain(..=end).collect();
            match serde_json::from_slice(&line)? {
                Request::Change(directions) => emulator.path.links.change(directions),
                Request::Count => {}
            }
            self.answer(&emulator.report()?)?;
        }
        Ok(length > 0)
    }

    fn answer(&mut self, report: &Report) -> io::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        self.answers.write_all(&line)
    }
}

struct Emulator {
    listening: Socket,
    landing: Landing,
    /// The hub's port towards each host.
    ports: Vec<Port>,
    /// The host behind each interface.
    hosts: BTreeMap<c_int, usize>,
    path: Path,
    /// The frames that are due, by host.
    due: Vec<Vec<Vec<u8>>>,
    missed: u64,
    /// Packets came or went in the last turn.
    moved: bool,
    start: Instant,
}

impl Emulator {
    fn open(settings: Settings) -> io::Result<Emulator> {
        let Settings { ports, directions, seed, offload } = settings;
        let size = ports.len();
        if (directions.up.len(), directions.down.len()) != (size, size) {
            return Err(io::Error::other("one direction up and one down per port are needed"));
        }
        let indices: Vec<c_int> = ports.iter().map(|name| interface(name)).collect::<io::Result<_>>()?;
        let sockets = (MOST_SOCKETS / size.max(1)).max(1);
        Ok(Emulator {
            listening: Socket::listening()?,
            landing: Landing::new(if offload { OFFLOADED } else { WHOLE }),
            ports: indices.iter().map(|index| Port::open(*index, sockets)).collect::<io::Result<_>>()?,
            hosts: indices.into_iter().zip(0..).collect(),
            path: Path::new(Links::new(directions, seed), size),
            due: (0..size).map(|_| Vec::new()).collect(),
            missed: 0,
            moved: false,
            start: Instant::now(),
        })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Takes what has come, and sends what is due.
    fn turn(&mut self) -> io::Result<()> {
        self.moved = false;
        for _ in 0..TURN {
            let taken = self.take()?;
            self.moved |= taken > 0;
            if taken < BATCH {
                break;
            }
        }
        let now = self.now();
        while let Some(QueuedFrame { to, frame }) = self.path.pop(now) {
            self.moved = true;
            self.due[to].push(frame);
        }
        for (port, frames) in self.ports.iter_mut().zip(&mut self.due) {
            if !frames.is_empty() {
                port.send(frames);
                self.path.spare.append(frames);
            }
        }
        Ok(())
    }

    /// Takes a batch of frames; returns how many there were.
    fn take(&mut self) -> io::Result<usize> {
        let (now, clock) = (self.now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
        let Emulator { landing, listening, hosts, path, .. } = self;
        landing.receive(listening, |frame| {
            if let Some(from) = hosts.get(&frame.interface) {
                path.admit(came(now, clock, frame.stamp), *from, frame.bytes);
            }
        })
    }

    fn report(&mut self) -> io::Result<Report> {
        self.missed += self.listening.missed()?;
        Ok(Report { hosts: self.path.counts.clone(), missed: self.missed, late: self.path.late })
    }
}

/// When a frame came, by the clock of `now`: what it waited until it was read is no part of its delay.
fn came(now: Duration, clock: Duration, stamp: Option<Duration>) -> Duration {
    let late = stamp.map_or(Duration::ZERO, |stamp| clock.saturating_sub(stamp));
    now.saturating_sub(if late > MOST_LATE { Duration::ZERO } else { late })
}
