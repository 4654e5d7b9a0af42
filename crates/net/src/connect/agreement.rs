//! What the descriptors of a group must agree on before anybody is called. All ranks hold the same ones, so all refuse
//! alike.

use crate::connect::descriptor::PeerDescriptor;
use tweed_proto::engine::EngineError;

/// The descriptors of a group, by rank, seen from one of its ranks.
pub(crate) struct Agreement<'a> {
    pub(crate) group: &'a str,
    pub(crate) rank: u32,
    pub(crate) descriptors: &'a [PeerDescriptor],
}

impl Agreement<'_> {
    /// Refuses what cannot become a group. `own` is the descriptor that this process gave.
    pub(crate) fn check(&self, own: &PeerDescriptor) -> Result<(), EngineError> {
        self.check_ranks(own)?;
        self.check_secrets(own)?;
        self.check_links()
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

    /// Every pair that shares no memory needs one that can be dialled by the other.
    fn check_links(&self) -> Result<(), EngineError> {
        for (b, theirs) in self.descriptors.iter().enumerate() {
            for (a, ours) in self.descriptors[..b].iter().enumerate() {
                if let Some(why) = unlinked(a, ours, b, theirs) {
                    return self.refuse(&why);
                }
            }
        }
        Ok(())
    }

    fn refuse(&self, why: &str) -> Result<(), EngineError> {
        Err(EngineError::Usage(format!("group {:?}: {why}", self.group)))
    }
}

fn unlinked(a: usize, ours: &PeerDescriptor, b: usize, theirs: &PeerDescriptor) -> Option<String> {
    if ours.shares_memory_with(theirs) {
        return None;
    }
    let Some(dials) = ours.dials(theirs) else {
        return Some(format!(
            "rank {a} on {} and rank {b} on {} can only dial out, so neither can call the other. Let one of them listen: \
             unset TWEED_DIAL_ONLY there, and give it a TWEED_HOST that the other reaches",
            ours.host, theirs.host
        ));
    };
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
        let own = &descriptors[rank as usize];
        let checked = Agreement { group: "g", rank, descriptors }.check(own);
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
    fn two_that_only_dial_are_named() {
        let descriptors = [descriptor("a", Some(A)), descriptor("b", None), descriptor("c", None)];
        let text = check(&descriptors, 0);
        assert!(text.contains("rank 1 on host-b and rank 2 on host-c"), "{text}");
        let mut neighbours = descriptors.clone();
        neighbours[2].boot = "b".into();
        assert_eq!(check(&neighbours, 0), "fine");
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
        let checked =
            Agreement { group: "g", rank: 0, descriptors: &descriptors }.check(&descriptor("c", None));
        assert!(checked.unwrap_err().to_string().contains("do two processes have that rank"));
    }
}
