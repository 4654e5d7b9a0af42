//! Callers of the worse kind, and what they need. Each file of tests uses its part of this.
#![allow(clippy::disallowed_types, reason = "tests lock as they like")]
#![allow(dead_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ring::hmac;
use serde_json::Value;
use tweed_net::Node;

/// The most bytes that anybody has taken at once.
pub(crate) static LARGEST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which remembers the largest request.
pub(crate) struct Counting;

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(place, layout) }
    }
}

/// A field of a descriptor, as text.
pub(crate) fn field(descriptor: &[u8], name: &str) -> String {
    let descriptor: Value = serde_json::from_slice(descriptor).unwrap();
    descriptor[name].as_str().map_or_else(|| descriptor[name].to_string(), str::to_owned)
}

/// Where a node listens.
pub(crate) fn address(node: &Node) -> SocketAddr {
    field(&node.descriptor(), "tcp").parse().unwrap()
}

/// The descriptor with another value in a field, or none.
pub(crate) fn edit(descriptor: Vec<u8>, name: &str, value: impl Into<Value>) -> Vec<u8> {
    let mut descriptor: Value = serde_json::from_slice(&descriptor).unwrap();
    descriptor[name] = value.into();
    serde_json::to_vec(&descriptor).unwrap()
}

/// The descriptors of nodes that are called through somebody between.
pub(crate) fn relayed(nodes: &[Node], between: &[Between]) -> Vec<Vec<u8>> {
    nodes.iter().zip(between).map(|(n, b)| edit(n.descriptor(), "tcp", b.address())).collect()
}

/// Waits for something that another thread brings about.
pub(crate) fn until(what: &str, happened: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !happened() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// So many connections that say nothing, or as many as this process may have beside its own.
pub(crate) fn flood(to: SocketAddr, callers: usize) -> Vec<mio::net::TcpStream> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain calls with a valid place. They allow this process as many descriptors as the system does.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    let callers = callers.min((limit.rlim_max as usize).saturating_sub(1000));
    (0..callers).map(|_| mio::net::TcpStream::connect(to).unwrap()).collect()
}

/// Listens, and says back what it hears.
pub(crate) fn mirror() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &socket, &mut &socket));
        }
    });
    address
}

/// What a caller in the clear signs with the nonce that it has read on a descriptor.
fn sign(descriptor: &[u8], caller: &str, challenge: &str) -> String {
    let texts = ["caller", caller, &field(descriptor, "uid"), "", challenge, "1", "0"];
    let bytes: Vec<u8> =
        texts.iter().flat_map(|t| (t.len() as u32).to_be_bytes().into_iter().chain(t.bytes())).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, field(descriptor, "nonce").as_bytes());
    hmac::sign(&key, &bytes).as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn read_frame(mut socket: impl Read) -> Option<Vec<u8>> {
    let mut head = [0; 3];
    socket.read_exact(&mut head).ok()?;
    let mut text = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    socket.read_exact(&mut text).ok()?;
    (head[0] != REFUSED).then_some(text)
}

const REFUSED: u8 = 2;

/// Answers the challenge of the process with that descriptor: a greeting in the clear. `None` if it turns us away.
pub(crate) fn greet(mut socket: impl Read + Write, descriptor: &[u8], uid: &str) -> Option<Vec<u8>> {
    let protocol = field(descriptor, "protocol");
    let challenge = String::from_utf8(read_frame(&mut socket)?).unwrap();
    let proof = sign(descriptor, uid, &challenge);
    let greeting = format!(
        r#"{{"protocol":{protocol},"uid":"{uid}","host":"h","attempt":1,"stream":0,"streams":1,"challenge":"",
            "proof":"{proof}","secret_proof":null,"arena_bytes":0,"page":0,"ring":0}}"#
    );
    let mut message = vec![3];
    message.extend((greeting.len() as u16).to_be_bytes());
    message.extend(greeting.bytes());
    socket.write_all(&message).ok()?;
    read_frame(&mut socket)
}

/// Sends the preamble and a greeting in the clear to the process with that descriptor, and reads the answers.
pub(crate) fn introduce(socket: &mut TcpStream, descriptor: &[u8], uid: &str) -> Option<Vec<u8>> {
    let protocol: u32 = field(descriptor, "protocol").parse().unwrap();
    let mut preamble = b"\x89tweed\r\n\0\0\0\0".to_vec();
    preamble[9] = protocol as u8;
    socket.write_all(&preamble).unwrap();
    socket.read_exact(&mut [0; 12]).unwrap();
    greet(socket, descriptor, uid)
}

type Recording = Arc<Mutex<Vec<u8>>>;

/// Somebody between two members, who hears all and may change what callers say.
pub(crate) struct Between {
    address: SocketAddr,
    recordings: Arc<Mutex<Vec<Recording>>>,
    passing: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    /// Passes callers on to `to`; `change` gets what they say, with its offset in their stream.
    pub(crate) fn new(to: SocketAddr, change: impl Fn(usize, &mut [u8]) + Clone + Send + 'static) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let between = Between { address, recordings: Arc::default(), passing: Arc::default() };
        let (recordings, passing) = (Arc::clone(&between.recordings), Arc::clone(&between.passing));
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let Ok(called) = TcpStream::connect(to) else { continue };
                let recording = Recording::default();
                recordings.lock().unwrap().push(Arc::clone(&recording));
                passing.lock().unwrap().extend([called.try_clone().unwrap(), caller.try_clone().unwrap()]);
                let (back, forth) = (called.try_clone().unwrap(), caller.try_clone().unwrap());
                let change = change.clone();
                std::thread::spawn(move || pass(&caller, &called, &recording, change));
                std::thread::spawn(move || pass(&back, &forth, &Recording::default(), |_, _| {}));
            }
        });
        between
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Cuts all connections that pass.
    pub(crate) fn cut(&self) {
        for socket in self.passing.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// What callers have sent, one recording per connection.
    pub(crate) fn recorded(&self) -> Vec<Vec<u8>> {
        self.recordings.lock().unwrap().iter().map(|r| r.lock().unwrap().clone()).collect()
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream, recording: &Recording, change: impl Fn(usize, &mut [u8])) {
    let mut bytes = [0; 4096];
    let mut at = 0;
    while let Ok(got @ 1..) = from.read(&mut bytes) {
        change(at, &mut bytes[..got]);
        at += got;
        recording.lock().unwrap().extend(&bytes[..got]);
        if to.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
