//! How two that cannot call each other make a link: both call a third one, and introduce themselves over what it joins.
//!
//! Theory of operation. The descriptors say who that is (`Agreement::way`), the same at both ends. Each end calls it as a
//! member, and says for whom; then it waits, as long as a meeting may last, to be told that the other one has come. From
//! there on the one with the lower uid is the caller, and the introduction is that of any connection: with a secret, each
//! proves its own key to the other, which the third one does not have, and what follows is sealed with keys that it does
//! not see. One connection is a link: what needs the pair is little, as schedules avoid it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connect::admission::deadline_stream::DeadlineStream;
use crate::connect::connector::Connector;
use crate::connect::descriptor::PeerDescriptor;
use crate::connect::local_handshake::Greeting;
use crate::connect::tcp_handshake::{Call, Link};
use crate::framing::greeting::{self, Kind};
use crate::framing::Refusal;

impl Connector {
    /// Makes a link to a process through another one, or has it make one.
    pub(crate) fn dial_relayed(
        self: &Arc<Self>,
        call: &Call<'_>,
        relay: &PeerDescriptor,
    ) -> Result<(), Refusal> {
        let made = self.persist(call, 0, |answer| self.dial_relayed_once(call, relay, answer))?;
        made.map_or(Ok(()), |link| self.link(call.descriptor, call.attempt, vec![link]).map(|_| ()))
    }

    /// `None`: it was called, and waits with the pending ones.
    fn dial_relayed_once(
        &self,
        call: &Call<'_>,
        relay: &PeerDescriptor,
        answer: Duration,
    ) -> Result<Option<Link>, Refusal> {
        let third = Call { descriptor: relay, ..*call };
        let relay_to = Some(call.descriptor.uid.clone());
        let socket = self.connect_to(&third, answer)?;
        let half = self.introduce(socket, &third, answer, Greeting { relay_to, ..self.greeting(0, 1) })?;
        let socket = half.into_socket()?;
        let left = call.deadline.saturating_duration_since(Instant::now());
        let joined = greeting::read(DeadlineStream::new(&socket, left, call.stop), Kind::Joined, 0);
        joined.map_err(|why| if why == Refusal::Late { Refusal::Silent } else { why })?;
        let relay = Some(relay.uid.clone());
        if self.descriptor.uid < call.descriptor.uid {
            let link = self.introduce(socket, call, self.limits().greet, self.greeting(0, 1))?;
            return Ok(Some(Link { relay, ..link }));
        }
        let mut wire = DeadlineStream::new(&socket, self.limits().greet, call.stop);
        let (greeting, session) = self.hear(&socket, &mut wire, || {})?;
        let link = Link { socket: Arc::new(socket), session, relay };
        self.keep_pending(greeting, link).map(|()| None)
    }
}
