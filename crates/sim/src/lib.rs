//! A virtual clock and a virtual network: runs the executor of `tweed-proto` for any number of ranks.
//!
//! [`run`] starts one real [`Executor`](tweed_proto::Executor) per rank, carries out what they ask for on a
//! simulated network, and checks the result. Nothing sleeps: an hour of simulated time takes as long as its
//! events. The same seed gives the same run, event by event.
//!
//! **The network.** A message takes the channels of its way one after the other: the links of its route, or,
//! in a flat network ([`Topology::complete`](tweed_schedule::Topology::complete)), the port of its sender and
//! the port of its receiver. A channel serves messages in the order in which they reach it, one at a time, each
//! for `bytes / bandwidth`; the first byte reaches the end of a channel after its latency and goes on at once
//! (cut-through), and others use the gaps that a slower channel before leaves. Of links side by side
//! ([`Link::count`](tweed_schedule::Link::count)) a message takes the one that is free first. A switch with a capacity
//! ([`Traits`](tweed_schedule::Traits)) is a channel too, before the link that leaves it. Queues never overflow.
//! So a message alone takes the sum of the latencies plus its bytes over the slowest channel.
//! Acknowledgements take the latency only.
//!
//! **The ranks.** Each does its arithmetic one piece at a time, at [`Setup::compute`] bytes per second.
//! Each message that it sends or takes in keeps it busy for [`Setup::message`]. [`Setup`] also says who
//! starts late, who is slow and who dies.

mod clock;
pub mod engines;
mod error;
pub mod ltp;
pub mod members;
mod network;
pub mod objects;
mod outcome;
mod rank;
mod setup;
mod world;

pub use error::SimError;
pub use outcome::{Crossing, End, Outcome};
pub use setup::Setup;
pub use world::run;
