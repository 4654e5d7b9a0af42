//! Links between a hub and its members, as far as something is decided: who may have one, and what crosses it.
//!
//! A hub knows a member by its key, and by nothing else: members come and go, and none is named beforehand. [`Roster`]
//! says who is let in, and which link is a member's. Over a link go messages of any length, one after the other:
//! [`Outbox`] has what is to be sent, [`Assembly`] puts together what has come. What a message *means* is not known here.
//!
//! What cannot happen: a member has two links; one that is not listed, or was expelled, has any; memory is taken in
//! proportion to what the other side only claims, or for one that does not read what it is told.

mod assembly;
mod outbox;
mod roster;

pub use assembly::{Assembly, TooLong};
pub use outbox::{Body, MostQueued, Outbox, TooMuch, MOST_QUEUED};
pub use roster::{Barred, Key, Roster};
