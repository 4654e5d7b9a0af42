//! Objects on a virtual network: the members of `tweed-proto`, hundreds of them, with late arrivals, deaths, links that break, and uneven ones.
//!
//! [`run`] carries out what [`Setup`] says, with one real [`Member`](tweed_proto::objects::Member) per process, and checks
//! every value that comes out against the ids that are said to be in it. Blocks go over the simulator's
//! [network](crate), along the path that joins a pair; messages take the latency only, in order for each pair.
//! A puller grants its source as many blocks as the path holds, and two.

mod content;
mod cuts;
mod pairs;
mod process;
mod scenario;
mod setup;
pub mod workloads;
mod world;

pub use scenario::{behind_switch, describe, scenario, verify, with_newcomers, Report};
pub use setup::{Call, Cut, Outcome, Setup, What};
pub use world::run;
