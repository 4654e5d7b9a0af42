//! What the descriptors of a group must agree on before anybody is called. All ranks hold the same ones, so all refuse
//! alike.

use crate::connect::descriptor::PeerDescriptor;
use tweed_proto::engine::EngineError;
use tweed_proto::relay;

/// The descriptors of a group, by rank, seen from one of its ranks.
pub(crate) struct Agreement<'a> {
    pub(crate) group: &'a str,
    pub(crate) rank: u32,
    pub(crate) descriptors: &'a [PeerDescriptor],
    /// Pairs of ranks that cannot call each other, whatever their descriptors say.
    pub(crate) missing: &'a [(u32, u32)],
}

/// How two ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They share memory, or one calls the other.
    Direct,
    /// Both call that rank.
    Through(usize),
    /// By nobody of this group.
    None,
}

impl Agreement<'_> {
    /// Refuses what cannot become a group. `own` is the descriptor that this process gave, and `is_linked` says of a uid
    /// whether a link to that process stands, from another group.
    pub(crate) fn check(
        &self,
        own: &PeerDescriptor,
        is_linked: impl Fn(&str) -> bool,
    ) -> Result<(), EngineError> {
        self.check_ranks(own)?;
        self.check_secrets(own)?;
        self.check_links(is_linked)
    }

    /// How these two reach each other. All ranks find the same.
    pub(crate) fn way(&self, a: usize, b: usize) -> Way {
        let (ours, theirs) = (&self.descriptors[a], &self.descriptors[b]);
        let called = ours.dials(theirs).is_some() && !self.is_missing(a as u32, b as u32);
        if called || ours.shares_memory_with(theirs) {
            return Way::Direct;
        }
        let ranks = self.descriptors.len() as u32;
        let third = relay::choose(ranks, (a as u32, b as u32), |from, to| self.can_call(from, to));
        third.map_or(Way::None, |rank| Way::Through(rank as usize))
    }

    /// Some two ranks reach each other through that one.
    pub(crate) fn is_relay(&self, rank: usize) -> bool {
        let ranks = 0..self.descriptors.len();
        ranks.clone().any(|b| (0..b).any(|a| self.way(a, b) == Way::Through(rank)))
    }

    fn is_missing(&self, a: u32, b: u32) -> bool {
        self.missing.iter().any(|&pair| pair == (a, b) || pair == (b, a))
    }

    fn can_call(&self, from: u32, to: u32) -> bool {
        let (caller, called) = (&self.descriptors[from as usize], &self.descriptors[to as usize]);
        let open = called.tcp.is_some_and(|at| !at.ip().is_loopback() || !caller.network_differs(called));
        open && !self.is_missing(from, to)
    }

    fn check_ranks(&self, own: &PeerDescriptor) -> Result<(), EngineError> {
        if self.descriptors.get(self.rank as usize).is_none_or(|c| c.uid != own.uid) {
            let rank = self.rank;
            return self.refuse(&format!(
                "the descriptor of rank {rank} is not this process's; do two processes have that rank?"
            ));
        }
        for (rank, descriptor) in self.descriptors.iter().enumerate() {
            if let Some(twin) = self.descriptors[..rank].iter().position(|c| c.uid == descriptor.uid) {
                return self.refuse(&format!("ranks {twin} and {rank} are the same process"));
            }
        }
        Ok(())
    }

    /// All have a secret, or none. Whether it is the same one shows when they meet: nothing on a descriptor may help to
    /// guess it.
    fn check_secrets(&self, own: &PeerDescriptor) -> Result<(), EngineError> {
        let me = format!("rank {} on {}", self.rank, own.host);
        for (rank, descriptor) in self.descriptors.iter().enumerate() {
            let it = format!("rank {rank} on {}", descriptor.host);
            let why = match (&own.key, &descriptor.key) {
                (None, None) | (Some(_), Some(_)) => continue,
                (Some(_), None) => format!("{it} has no secret, and {me} has one"),
                (None, Some(_)) => format!("{it} has a secret, and {me} has none"),
            };
            return self.refuse(&format!("{why}. Give all ranks the same TWEED_SECRET or TWEED_SECRET_FILE"));
        }
        Ok(())
    }

    /// Every pair that shares no memory needs one that can be dialled by the other, or a third one that both can dial. Where
    /// a group has no such one, nobody in it listens, so each of its ranks is of a pair without it.
    fn check_links(&self, is_linked: impl Fn(&str) -> bool) -> Result<(), EngineError> {
        for b in 0..self.descriptors.len() {
            for a in 0..b {
                let (ours, theirs) = (&self.descriptors[a], &self.descriptors[b]);
                match self.way(a, b) {
                    Way::Direct => deaf(a, ours, b, theirs).map_or(Ok(()), |why| self.refuse(&why))?,
                    Way::None if self.is_missing(a as u32, b as u32) => return self.lack(a, b),
                    Way::None => {
                        let own = [a, b].contains(&(self.rank as usize));
                        let other = if a == self.rank as usize { theirs } else { ours };
                        if own && !is_linked(&other.uid) {
                            return self.refuse(&shut(a, ours, b, theirs));
                        }
                    }
                    Way::Through(_) => {}
                }
            }
        }
        Ok(())
    }

    /// The link between two is missing. It may come back, so this is no mistake of the user's.
    fn lack(&self, a: usize, b: usize) -> Result<(), EngineError> {
        let (ours, theirs) = (&self.descriptors[a].host, &self.descriptors[b].host);
        Err(EngineError::PeerLost(format!(
            "group {:?}: the link between rank {a} on {ours} and rank {b} on {theirs} is missing, and no third rank is \
             called by both. Wait until it is there again, or let a rank listen that both reach",
            self.group
        )))
    }

    fn refuse(&self, why: &str) -> Result<(), EngineError> {
        Err(EngineError::Usage(format!("group {:?}: {why}", self.group)))
    }
}

fn shut(a: usize, ours: &PeerDescriptor, b: usize, theirs: &PeerDescriptor) -> String {
    format!(
        "rank {a} on {} and rank {b} on {} can only dial out, so neither can call the other, and no third rank listens that \
         both could call. Let a rank listen: unset TWEED_DIAL_ONLY there, and give it a TWEED_HOST that the others reach",
        ours.host, theirs.host
    )
}

/// Why the one of two that is called cannot be.
fn deaf(a: usize, ours: &PeerDescriptor, b: usize, theirs: &PeerDescriptor) -> Option<String> {
    let dials = ours.dials(theirs).filter(|_| !ours.shares_memory_with(theirs))?;
    let (rank, listener) = if dials { (b, theirs) } else { (a, ours) };
    let deaf = listener.tcp.is_some_and(|t| t.ip().is_loopback()) && ours.network_differs(theirs);
    deaf.then(|| {
        format!(
            "rank {rank} on {} listens on loopback only, where no other host can call it. Set TWEED_HOST there to the \
             address by which the others reach it, and give all ranks the same TWEED_SECRET",
            listener.host
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::PROTOCOL;

    fn descriptor(uid: &str, tcp: Option<&str>) -> PeerDescriptor {
        PeerDescriptor {
            protocol: PROTOCOL,
            uid: uid.into(),
            host: format!("host-{uid}"),
            pid: 1,
            started: 1,
            pids: "pid:[1]".into(),
            boot: uid.into(),
            network: "net:[1]".into(),
            local: uid.into(),
            nonce: String::new(),
            tcp: tcp.map(|t| t.parse().unwrap()),
            key: None,
            wire_only: false,
            broken: Vec::new(),
        }
    }

    fn check(descriptors: &[PeerDescriptor], rank: u32) -> String {
        check_without(descriptors, rank, &[])
    }

    fn check_without(descriptors: &[PeerDescriptor], rank: u32, missing: &[(u32, u32)]) -> String {
        let own = &descriptors[rank as usize];
        let checked = Agreement { group: "g", rank, descriptors, missing }.check(own, |_| false);
        checked.map_or_else(|e| e.to_string(), |()| "fine".into())
    }

    const A: &str = "192.0.2.1:5";
    const B: &str = "192.0.2.2:5";

    #[test]
    fn who_listens_can_be_dialled_by_who_does_not() {
        let descriptors = [descriptor("a", None), descriptor("b", Some(B)), descriptor("c", Some(A))];
        assert_eq!(check(&descriptors, 0), "fine");
        assert_eq!(descriptors[0].dials(&descriptors[1]), Some(true));
        assert_eq!(descriptors[1].dials(&descriptors[0]), Some(false));
        assert_eq!(descriptor("z", None).dials(&descriptors[1]), Some(true));
        assert_eq!(descriptors[1].dials(&descriptors[2]), Some(true));
    }

    #[test]
    fn two_that_only_dial_need_a_third_one_that_listens() {
        let alone = [descriptor("b", None), descriptor("c", None), descriptor("d", None)];
        for rank in 0..3 {
            let text = check(&alone, rank);
            assert!(
                text.contains(&format!("rank {rank} on")) && text.contains("can only dial out"),
                "{text}"
            );
        }
        let linked = Agreement { group: "g", rank: 0, descriptors: &alone, missing: &[] };
        assert_eq!(linked.check(&alone[0], |_| true), Ok(()), "links of an earlier group stand");
        let with = [descriptor("a", Some(A)), descriptor("b", None), descriptor("c", None)];
        assert_eq!(check(&with, 0), "fine");
        let known = Agreement { group: "g", rank: 0, descriptors: &with, missing: &[] };
        assert_eq!([known.way(0, 1), known.way(1, 2)], [Way::Direct, Way::Through(0)]);
        assert_eq!([0, 1].map(|rank| known.is_relay(rank)), [true, false]);
        let mut neighbours = alone[..2].to_vec();
        neighbours[1].boot = "b".into();
        assert_eq!(check(&neighbours, 0), "fine");
    }

    #[test]
    fn a_link_that_is_missing_is_led_through_who_reaches_both() {
        let descriptors = [descriptor("a", Some(A)), descriptor("b", Some(B)), descriptor("c", Some(A))];
        let known = Agreement { group: "g", rank: 2, descriptors: &descriptors, missing: &[(0, 2)] };
        assert_eq!([known.way(0, 2), known.way(0, 1)], [Way::Through(1), Way::Direct]);
        let text = check_without(&descriptors, 1, &[(0, 2), (1, 2)]);
        assert!(text.contains("rank 0 on host-a and rank 2 on host-c is missing"), "{text}");
    }

    #[test]
    fn loopback_is_of_no_use_to_another_host() {
        let descriptors = [descriptor("a", Some(A)), descriptor("b", Some("127.0.0.1:5"))];
        let text = check(&descriptors, 0);
        assert!(text.contains("rank 1 on host-b listens on loopback only"), "{text}");
        let mut neighbours = descriptors.clone();
        (neighbours[1].boot, neighbours[1].wire_only) = ("a".into(), true);
        assert_eq!(check(&neighbours, 0), "fine");
    }

    #[test]
    fn who_has_no_secret_is_named_and_descriptors_show_no_more() {
        let sealed = |uid: &str| PeerDescriptor { key: Some("00".repeat(32)), ..descriptor(uid, Some(A)) };
        assert_eq!(check(&[sealed("a"), sealed("b")], 0), "fine");
        let none = [sealed("a"), descriptor("b", Some(B))];
        assert!(check(&none, 0).contains("rank 1 on host-b has no secret, and rank 0 on host-a has one"));
        assert!(check(&none, 1).contains("rank 0 on host-a has a secret, and rank 1 on host-b has none"));
    }

    #[test]
    fn ranks_are_counted() {
        let descriptors = [descriptor("a", Some(A)), descriptor("a", Some(A))];
        assert!(check(&descriptors, 0).contains("ranks 0 and 1 are the same process"));
        let checked = Agreement { group: "g", rank: 0, descriptors: &descriptors, missing: &[] };
        let checked = checked.check(&descriptor("c", None), |_| false);
        assert!(checked.unwrap_err().to_string().contains("do two processes have that rank"));
    }
}
