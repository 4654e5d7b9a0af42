//! Why a caller was turned away, in words that fit both the one who called and the one who was called.

use std::fmt;
use std::io;

use tweed_proto::hub::Barred;

use super::PROTOCOL;
use crate::system_error::in_words;

/// What is wrong with the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotTweed,
    Version(u16),
    /// It has no secret, and we have.
    Open,
    /// It has a secret, and we have none.
    Closed,
    Secret,
    Key,
    /// Another process than the one on the descriptor, or one that does not know our nonce.
    Stranger,
    /// It is gone, as the kernel says.
    Ended,
    /// It called for a link that a later call of its own has replaced.
    Outdated,
    /// This process was told to stop waiting.
    Interrupted,
    /// One of the two is a hub or a member of one, and the other a rank of a group.
    Purpose,
    /// Another process has the hub's address than the one whose key was given.
    OtherHub,
    /// A hub does not let this member in.
    Member(Barred),
    Garbled(&'static str),
    /// It should have called, and did not.
    Silent,
    Late,
    /// No process listens at that address.
    Deaf,
    /// Not even the kernel answers.
    Unanswered,
    /// This host knows no way there.
    NoRoute,
    HungUp,
    Crowd,
    /// It is of another user of this machine.
    User(u32),
    /// The kernel does not say of which user it is, for that reason.
    Unseen(String),
    /// Without a secret it is not called: its address is not loopback.
    Afar,
    /// It has turned us away, for that reason.
    TurnedAway(&'static str),
    System(String),
}

impl Refusal {
    /// A word for counters.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Refusal::NotTweed => "not tweed",
            Refusal::Version(_) => "version",
            Refusal::Open | Refusal::Closed => "sealed or not",
            Refusal::Secret => "secret",
            Refusal::Key => "key",
            Refusal::Stranger => "stranger",
            Refusal::Ended => "ended",
            Refusal::Outdated => "outdated",
            Refusal::Interrupted => "interrupted",
            Refusal::Silent => "silent",
            Refusal::Purpose => "purpose",
            Refusal::OtherHub => "other hub",
            Refusal::Member(Barred::Unlisted) => "unlisted",
            Refusal::Member(Barred::Expelled) => "expelled",
            Refusal::Member(Barred::Full) => "full",
            Refusal::Garbled(_) => "garbled",
            Refusal::Late => "late",
            Refusal::Deaf => "deaf",
            Refusal::Unanswered => "unanswered",
            Refusal::NoRoute => "no route",
            Refusal::HungUp => "hung up",
            Refusal::Crowd => "crowd",
            Refusal::User(_) => "user",
            Refusal::Unseen(_) => "user unknown",
            Refusal::Afar => "no secret",
            Refusal::TurnedAway(_) => "told",
            Refusal::System(_) => "system",
        }
    }

    /// Trying again would end the same way.
    pub(crate) fn is_final(&self) -> bool {
        use Refusal::*;
        matches!(
            self,
            NotTweed
                | Version(_)
                | Open
                | Closed
                | Secret
                | Key
                | Stranger
                | User(_)
                | Unseen(_)
                | Afar
                | Purpose
                | OtherHub
                | Member(Barred::Unlisted | Barred::Expelled)
        )
    }

    /// Where it was, nothing is any more, or another process: the one that was looked for has ended.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Refusal::Deaf | Refusal::OtherHub | Refusal::User(_))
    }

    /// What the other side is told. It learns no more than it must.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Refusal::Secret => 1,
            Refusal::Crowd => 2,
            Refusal::Member(Barred::Unlisted) => 3,
            Refusal::Member(Barred::Expelled) => 4,
            Refusal::Member(Barred::Full) => 5,
            Refusal::User(_) | Refusal::Unseen(_) => 6,
            _ => 0,
        }
    }

    /// The inverse of `code`, at the other side.
    pub(crate) fn received(code: Option<&u8>) -> Refusal {
        match code {
            Some(1) => Refusal::Secret,
            Some(2) => Refusal::Crowd,
            Some(3) => Refusal::Member(Barred::Unlisted),
            Some(4) => Refusal::Member(Barred::Expelled),
            Some(5) => Refusal::Member(Barred::Full),
            Some(6) => Refusal::TurnedAway(
                "it does not see that both are of one user, who alone takes part without a secret; give all the same secret \
                 (TWEED_SECRET_FILE, docs/security.md)",
            ),
            _ => Refusal::TurnedAway("its own output says why"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotTweed => write!(f, "it is something that is not tweed"),
            Refusal::Version(theirs) => write!(
                f,
                "it speaks protocol {theirs}, this process {PROTOCOL}; install the same tweed everywhere"
            ),
            Refusal::Open => write!(
                f,
                "it has no secret, and this process has one; give all ranks the same TWEED_SECRET"
            ),
            Refusal::Closed => write!(
                f,
                "it has a secret, and this process has none; give all ranks the same TWEED_SECRET"
            ),
            Refusal::Secret => {
                write!(f, "its secret is not that of this process (wrong secret); give all ranks the same TWEED_SECRET")
            }
            Refusal::Key => write!(f, "its key is not the one on its descriptor: it is not who it says it is"),
            Refusal::Stranger => write!(
                f,
                "it cannot show that it belongs to this run: it is another process than the one that was looked for, or \
                 one that has not read the launcher's store"
            ),
            Refusal::Ended => write!(f, "its process has ended"),
            Refusal::Outdated => write!(f, "it has called again since"),
            Refusal::Interrupted => write!(f, "this process was interrupted while it waited"),
            Refusal::Silent => write!(f, "it did not call in time"),
            Refusal::Purpose => write!(
                f,
                "one of the two is a hub or a member of one, and the other a rank of a group; check the port"
            ),
            Refusal::OtherHub => write!(
                f,
                "its key is not the one that was given for the hub: it is not who it says it is. If the hub was given another \
                 key, take the one that it prints now"
            ),
            Refusal::Member(why) => write!(f, "the hub lets not everybody in, and of the one who called it says: {why}"),
            Refusal::Garbled(what) => write!(f, "what it sent is not {what}"),
            Refusal::Late => write!(f, "it did not finish its introduction in time"),
            Refusal::Unanswered => write!(f, "nothing answers there in time"),
            Refusal::NoRoute => write!(f, "no route leads there"),
            Refusal::Deaf => write!(f, "nothing listens there (connection refused)"),
            Refusal::HungUp => write!(f, "it hung up in the middle of the introduction"),
            Refusal::Crowd => write!(f, "too many callers were waiting at once"),
            Refusal::User(uid) => write!(
                f,
                "it belongs to another user of this machine (number {uid}). If that user takes part, give all the same secret \
                 (TWEED_SECRET_FILE, docs/security.md) and TWEED_TRANSPORT=tcp, as memory is shared within one user only"
            ),
            Refusal::Unseen(why) => write!(
                f,
                "the kernel does not say which user it belongs to ({why}), and without a secret only processes of one user \
                 take part; give all the same secret (TWEED_SECRET_FILE, docs/security.md)"
            ),
            Refusal::Afar => write!(
                f,
                "its address is not loopback, and without a secret nothing else is called; give all the same secret \
                 (TWEED_SECRET_FILE, docs/security.md), or let it listen on 127.0.0.1"
            ),
            Refusal::TurnedAway(why) => write!(f, "it turned this process away; {why}"),
            Refusal::System(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        use io::ErrorKind as E;
        match error.kind() {
            E::WouldBlock | E::TimedOut => Refusal::Late,
            E::ConnectionRefused => Refusal::Deaf,
            // Not of a host that cannot be reached, which a firewall may claim.
            E::NetworkUnreachable => Refusal::NoRoute,
            E::UnexpectedEof | E::ConnectionReset | E::ConnectionAborted | E::BrokenPipe => Refusal::HungUp,
            _ => Refusal::System(in_words(&error)),
        }
    }
}
