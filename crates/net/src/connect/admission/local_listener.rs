//! The local listener: a thread that lets processes of this host in, as the TCP listener lets in those of others.
//!
//! Any process of this user can call, one that has gone wrong as well: it takes no more than its place in a `crowd` of
//! their own. Who had to go, and meant well, calls again (`Connector::dial_neighbour`).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::admission::crowd::Crowd;
use crate::connect::admission::listener::Admitting;
use crate::connect::connector::Connector;
use crate::connect::local_handshake::challenge;
use crate::connect::same_user::check_neighbour;
use crate::framing::Refusal;

const CALLER: &str = "a process on this host";

pub(crate) struct LocalListener {
    listener: UnixListener,
    crowd: Crowd,
}

impl LocalListener {
    /// Listens there; callers wait in the kernel's queue until `run`.
    pub(crate) fn bind(name: &str) -> io::Result<LocalListener> {
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        crate::link::fork::shut_in_children(&listener);
        listener.set_nonblocking(true)?;
        let crowd = Crowd::new()?;
        crowd.open(&listener, || Ok(()))?;
        Ok(LocalListener { listener, crowd })
    }

    /// Lets callers in until the node stops.
    pub(crate) fn run(self: &Arc<Self>, connector: &Arc<Connector>) {
        let let_in = |number, (socket, _)| self.let_in(connector, number, socket);
        self.crowd.serve(connector.limits().greet, || self.listener.accept(), let_in);
        // It is shut down by now, so this ends: who is still in the kernel's queue is let go.
        while self.listener.accept().is_ok() {}
    }

    fn let_in(self: &Arc<Self>, connector: &Arc<Connector>, number: u64, socket: UnixStream) {
        let challenge = match receive(&socket) {
            Ok(challenge) => challenge,
            Err(refusal) => return connector.refuse(CALLER, &refusal),
        };
        let (listener, connector, socket) = (Arc::clone(self), Arc::clone(connector), Arc::new(socket));
        self.crowd.enter(number, (Arc::clone(&socket) as Arc<_>, Duration::ZERO), move || {
            if let Err(refusal) = listener.greet(&connector, number, (socket, &challenge)) {
                connector.refuse(CALLER, &refusal);
            }
        });
    }

    /// Once the caller is through it has left the crowd: nobody shuts a link that stands.
    fn greet(
        &self,
        connector: &Connector,
        number: u64,
        (socket, challenge): (Arc<UnixStream>, &str),
    ) -> Result<(), Refusal> {
        let crowd = &self.crowd;
        let met = connector.answer_neighbour(&socket, challenge, || crowd.note_proven(number));
        if crowd.leave(number) {
            return Err(Refusal::Crowd);
        }
        let (theirs, shared) = met?;
        let socket = Arc::into_inner(socket).expect("the crowd had the only other hold of it");
        connector.add_neighbour((&theirs.uid, theirs.attempt), &theirs.host, shared, socket)
    }

    /// Ends the thread, and sends all callers away.
    pub(crate) fn close(&self) {
        self.crowd.close(&self.listener);
    }
}

/// Sends it the challenge, if it is of this user.
fn receive(caller: &UnixStream) -> Result<String, Refusal> {
    crate::link::fork::shut_in_children(caller);
    check_neighbour(caller)?;
    caller.set_nonblocking(true)?;
    challenge(caller)
}
