//! Who is a member, agreed by the members themselves while they come, go and are cut off from each other.
//!
//! # Theory of operation
//!
//! A [`Member`] is a key, which is permanent, and an incarnation: a process that has forgotten what it promised is another
//! incarnation of its key, and stands for nothing that the one before it said. An [`Epoch`] is a value: a number, members in
//! the order of their ranks, who votes on the next one, which links between members are missing, the step from which it
//! holds, and whether a member of the one before was lost: what waits for that one is to be ended. The founders hold epoch 1 from the start. Each later epoch is agreed by the *voters* of the one before it: its
//! members, or witnesses that were named ([`Voters`]).
//!
//! **Agreement** is by single-decree consensus, one instance per epoch number (Lamport, "The part-time parliament", 1998). A
//! member that wants another epoch ([`Proposer`]) asks the voters to promise its ballot; if a quorum does, it asks them to
//! accept an epoch: the one that was accepted under the highest ballot among their answers, or else its own. What a quorum
//! accepted is decided. A voter ([`Acceptor`]) goes back on no promise. A quorum is more than half of *all* voters of the last
//! epoch, or exactly half with the lowest among them. Voters that are known to be dead count as well: not to count them lets two
//! sides of a split network each call the other one dead, and agree on two epochs of one number. Two quorums of one epoch share a
//! voter, so no two values are decided; so on one side of a split at most there is a next epoch.
//!
//! **What is proposed** follows from who hears whom ([`View`]). Each member sends a *heartbeat* to all others now and then, with
//! whom it hears and is heard by. Kept are the members that a proposer reaches over links that work in both directions, if need be
//! over one other member; a link between two that are kept, and does not work, is listed as missing and costs no member.
//! Fewer than the minimum are not proposed: they wait. Who joins is added, at the end of the ranks, when others had time to come
//! too ([`Joins`]); who was lost several times waits longer each time. Who leaves in good order says so in its
//! heartbeats, and votes until an epoch without it holds. Of those who see the same loss the one of lowest rank proposes
//! first, the others later by their rank, or ballots would outdo each other. What a voter that is a member has accepted is
//! brought to a decision also if who was lost is heard again: else it would be decided with the next loss, and two would be lost at
//! once. What a witness has accepted alone may wait for that.
//!
//! **Learning.** Whoever meets a lower epoch number than its own answers with its epoch, [`Message::Decided`]. So all that can be
//! reached learn the last one; who does not find itself in it was evicted, and may come back as a new incarnation. Who waits, and the
//! first of those who do not, send their heartbeats to all that ever were members as well: of a split, one side may know nobody else who
//! lives.
//!
//! **Time** is ticks that the driver gives; nothing here reads a clock. A driver that knows more than silence tells (a connection
//! was reset) says so by [`Node::handle_lost`].
//!
//! **Witnesses** have no data and propose nothing. Their promises have to outlive their process: [`Action::Store`] comes before what
//! may only be sent when it is stored, and [`Node::restored`] begins from it under the same incarnation. One that lost what it stored
//! comes as a new incarnation, and is voter again when an epoch says so. So may another process in its place ([`Seat`]): the voters of
//! the next epoch, and where they are called, are a part of its value, on which the voters of the last one agree. The old one has no
//! vote from then on, whether it lives or not.
//!
//! What cannot happen: two epochs of one number; an epoch with a key twice, or with fewer members than the minimum;
//! a vote by a process that has forgotten an earlier one. What can: if half of the voters or more are gone for good, there is no
//! next epoch, whatever is left, and so nobody takes their places; it waits, and [`Node::standing`] says for whom.

mod acceptor;
mod epoch;
mod joins;
mod message;
mod node;
mod proposer;
mod ranks;
mod settings;
mod standing;
mod view;
mod voters;

pub use acceptor::{Acceptor, Answer, Ballot};
pub use epoch::{
    Epoch, Member, Seat, Witness, MOST_ADDRESS_BYTES, MOST_MEMBERS, MOST_MISSING, MOST_WITNESSES,
};
pub use joins::Joins;
pub use message::{Heartbeat, Message, MOST_BYTES};
pub use node::{Action, Node, Record};
pub use proposer::Proposer;
pub use ranks::Ranks;
pub use settings::Settings;
pub use standing::{Standing, Why};
pub use view::View;
pub use voters::Voters;
