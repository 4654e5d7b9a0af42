//! How a process comes to know others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tweed_proto::engine::EngineError;
use tweed_proto::objects::{Bytes, Frame};

use super::node::Objects;
use super::peers::process_of;
use crate::connect::descriptor::PeerDescriptor;
use crate::secure::Key;
use crate::sync::stop::SLICE;

/// So many are called at a time.
const CALLS: usize = 16;

/// A process to be met: its place in the caller's list, and what its descriptor says.
struct Other {
    index: usize,
    address: SocketAddr,
    key: Key,
    descriptor: PeerDescriptor,
}

impl Objects {
    /// Meets the processes with these descriptors, but for those that it has met and itself. Who comes to others calls them
    /// all, and waits until they have heard of it; returns those that cannot be reached, by their place in the list, and why. Ends early when `interrupted` holds.
    pub fn meet(
        &self,
        descriptors: &[Vec<u8>],
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Vec<(usize, String)>, EngineError> {
        self.check_process()?;
        let mut others = Vec::new();
        for (index, bytes) in descriptors.iter().enumerate() {
            let descriptor = PeerDescriptor::decode(index, bytes)?;
            let (address, key) = descriptor.tcp.zip(descriptor.key()).ok_or_else(|| {
                EngineError::Usage("a descriptor names no place to call at: it is not one of objects".into())
            })?;
            others.push(Other { index, address, key, descriptor });
        }
        others.retain(|other| other.key != self.shared.links.key());
        let mut missed = Vec::new();
        for some in others.chunks(CALLS) {
            self.call_all(some, interrupted, &mut missed)?;
        }
        let mut state = self.shared.state.lock();
        let hello = Frame::Hello { descriptor: Bytes::clone(&self.descriptor) };
        let others = others.iter().map(|other| (process_of(&other.key), other.index));
        let (met, lost): (Vec<_>, Vec<_>) = others.partition(|(process, _)| state.peers.knows(*process));
        let is_missed = |index: usize| missed.iter().any(|other: &(usize, String)| other.0 == index);
        let lost = lost.into_iter().filter(|(_, index)| !is_missed(*index));
        let lost: Vec<_> = lost.map(|(_, index)| (index, "it is gone".to_owned())).collect();
        missed.extend(lost);
        met.iter().for_each(|(process, _)| state.tell(*process, &hello, None));
        for (process, index) in &met {
            state.meet(*process, &descriptors[*index]);
        }
        state.drive();
        // What others do from now on is to reckon with this process.
        let until = Instant::now() + self.shared.patience;
        while met.iter().any(|(process, _)| !state.peers.is_heard(*process)) {
            if Instant::now() >= until || interrupted() || state.is_closed {
                break;
            }
            state = self.shared.changed.wait_timeout(state, SLICE);
        }
        Ok(missed)
    }

    /// Calls all of these at once that are not known yet.
    fn call_all(
        &self,
        others: &[Other],
        interrupted: &dyn Fn() -> bool,
        missed: &mut Vec<(usize, String)>,
    ) -> Result<(), EngineError> {
        let (stop, links) = (AtomicBool::new(false), &self.shared.links);
        let is_new =
            |other: &&Other| self.shared.state.lock().peers.expect(other.key, other.descriptor.clone());
        let new: Vec<&Other> = others.iter().filter(is_new).collect();
        let results = std::thread::scope(|scope| {
            let call = |other: &&Other| {
                let (stop, address, key) = (&stop, other.address.to_string(), other.key);
                scope.spawn(move || links.call(&address, Some(key), &|| stop.load(Ordering::Relaxed)))
            };
            let calls: Vec<_> = new.iter().map(call).collect();
            while calls.iter().any(|call| !call.is_finished()) {
                stop.store(interrupted(), Ordering::Relaxed);
                std::thread::sleep(SLICE / 10);
            }
            calls.into_iter().map(|call| call.join().expect("calls do not panic")).collect::<Vec<_>>()
        });
        let mut failed = Ok(());
        for (result, other) in results.into_iter().zip(new) {
            let mut state = self.shared.state.lock();
            match result {
                Ok(link) if links.key_of(link).is_some() => state.join(link, other.key),
                Ok(_) => {} // it has ended already, and the event says so
                Err(error) => {
                    state.peers.forget(process_of(&other.key));
                    match error {
                        EngineError::PeerLost(text) => missed.push((other.index, text)),
                        error => failed = Err(error),
                    }
                }
            }
        }
        failed
    }
}
