//! What the watcher does in one step: it reads streams, and tells the engine who is lost. The live counterpart is
//! `watcher` of `tweed-net`.

use tweed_proto::engine::message::Kind;
use tweed_proto::engine::{Engine, Event};

use super::kernel::ThreadId;
use super::link::Segment;
use super::process::Process;
use super::thread::*;
use super::world::{Violation, World};

impl World {
    pub(super) fn watch(&mut self, p: usize, t: ThreadId, watching: Watching) -> Result<Watching, Violation> {
        Ok(match watching {
            Watching::Idle => self.look(p, t),
            Watching::Lock(Source::Process(_)) => Watching::Idle,
            Watching::Lock(Source::Stream(from, stream)) => {
                self.processes[p].lock = Some(t);
                let engine = &mut self.processes[p].engine;
                engine.listen(self.now);
                let Engine { peers, host, .. } = engine;
                peers.flush_stream(from, stream, host);
                Watching::Read(from, stream)
            }
            Watching::Read(from, stream) => self.read(p, t, (from, stream))?,
            Watching::Compute(from, stream, job) => {
                let values = self.compute(&job);
                self.finish(p, job, &values);
                self.next_job(p, (from, stream))
            }
            Watching::Drive(source, gone) => {
                if let Some(driven) = self.take_driven(p, t) {
                    self.after_others(p, driven);
                }
                if self.processes[p].engine.peers.has_neighbours() {
                    self.kernel.borrow_mut().processes[p].wakeup.ring_all();
                }
                match source {
                    Source::Stream(from, _) if gone => {
                        self.gone(p, source, from, "its connection was closed")
                    }
                    _ => Watching::Idle,
                }
            }
            Watching::Gone(peer, why, mut rest) => match rest.pop_front() {
                Some(source @ Source::Stream(..)) if self.is_ready(p, source) => {
                    // Its last messages are read before the loss is told; then this goes on.
                    self.drain(p, source)?;
                    Watching::Gone(peer, why, rest)
                }
                Some(_) => Watching::Gone(peer, why, rest),
                None => self.report_loss(p, peer, why),
            },
        })
    }

    fn look(&mut self, p: usize, t: ThreadId) -> Watching {
        let Process { engine, sources, .. } = &mut self.processes[p];
        sources.retain(|source| match *source {
            Source::Stream(from, _) | Source::Process(from) => !engine.peers.is_lost(from),
        });
        let sources = self.processes[p].sources.iter().copied();
        let ready: Vec<Source> = sources.filter(|&source| self.is_ready(p, source)).collect();
        if ready.is_empty() {
            self.processes[p].threads[t].sleep = Sleep::OnEvents;
            return Watching::Idle;
        }
        self.processes[p].threads[t].sleep = Sleep::Awake;
        let chosen = self.rng.index(ready.len());
        match ready[chosen.min(ready.len() - 1)] {
            source @ Source::Process(from) => self.gone(p, source, from, "its process ended"),
            source => Watching::Lock(source),
        }
    }

    /// Takes in one more stretch of a stream, or drives if there is no more.
    fn read(&mut self, p: usize, t: ThreadId, (from, stream): (usize, usize)) -> Result<Watching, Violation> {
        let segment = self.kernel.borrow_mut().there_mut(p, from).streams[stream].take();
        let Some(segment) = segment else {
            let kernel = self.kernel.borrow();
            let channel = &kernel.there(p, from).streams[stream];
            let ended = channel.ended && !channel.cut;
            drop(kernel);
            self.start_driving(p, t, Purpose::Others, true);
            return Ok(Watching::Drive(Source::Stream(from, stream), ended));
        };
        self.take_segment(p, (from, stream), segment);
        self.check_memory(p)?;
        Ok(self.next_job(p, (from, stream)))
    }

    fn next_job(&mut self, p: usize, (from, stream): (usize, usize)) -> Watching {
        match self.processes[p].engine.next_job(self.now) {
            Some(job) => Watching::Compute(from, stream, job),
            None => Watching::Read(from, stream),
        }
    }

    fn take_segment(&mut self, p: usize, (from, stream): (usize, usize), segment: Segment) {
        let process = &mut self.processes[p];
        let (peer, message) = (from, segment.message);
        let engine = &mut process.engine;
        let carried = message.kind == Kind::Carried;
        let place = |engine: &Engine<_>| if carried { engine.landing_place(peer, &message) } else { None };
        let incoming = process.incoming.entry((from, stream)).or_insert_with(|| Incoming {
            body: place(engine).map_or(Body::Owned(Vec::new()), |_| Body::Placed),
            filled: 0,
        });
        match &mut incoming.body {
            Body::Owned(bytes) => bytes.extend_from_slice(&segment.bytes),
            Body::Placed => match place(engine) {
                Some(at) => {
                    let at = at.plus(incoming.filled);
                    self.kernel.borrow_mut().write(p, at, &segment.bytes);
                }
                None => incoming.body = Body::Unwanted,
            },
            Body::Unwanted => {}
        }
        incoming.filled += segment.bytes.len() as u64;
        if !segment.last {
            return;
        }
        match process.incoming.remove(&(from, stream)).expect("just filled").body {
            Body::Owned(bytes) => engine.handle_message(peer, message, bytes.into()),
            Body::Placed => engine.handle_placed(peer, message),
            Body::Unwanted => {}
        }
    }

    /// A source has ended.
    fn gone(&mut self, p: usize, source: Source, peer: usize, why: &'static str) -> Watching {
        self.processes[p].sources.remove(&source);
        let streams = |source: &&Source| matches!(source, Source::Stream(..));
        let rest = self.processes[p].sources.iter().filter(streams).copied().collect();
        Watching::Gone(peer, why, rest)
    }

    /// Reads all that has come over a stream, if the engine is free.
    fn drain(&mut self, p: usize, source: Source) -> Result<(), Violation> {
        let Source::Stream(from, stream) = source else { return Ok(()) };
        if self.processes[p].lock.is_some() {
            return Ok(());
        }
        loop {
            let segment = self.kernel.borrow_mut().there_mut(p, from).streams[stream].take();
            let Some(segment) = segment else { return Ok(()) };
            self.take_segment(p, (from, stream), segment);
        }
    }

    fn report_loss(&mut self, p: usize, peer: usize, why: &'static str) -> Watching {
        let of_peer = |source: &Source| matches!(source, Source::Stream(from, _) if *from == peer);
        let broken = why == "its process ended";
        if broken || !self.processes[p].sources.iter().any(of_peer) {
            self.post(p, Event::Lost(peer, why.to_owned()));
        }
        Watching::Idle
    }
}
