//! Members that come and go on a virtual network: the nodes of `tweed-proto`, under faults that a seed draws.
//!
//! [`scenario`] draws who founds, who decides, and a plan of [`Fault`]s, all of which are over at some tick. [`run`] carries it out:
//! messages take a few ticks, overtake each other, come twice or not at all. [`verify`] looks whether
//!
//! * an epoch number was ever agreed with two values, or an epoch has fewer members than the minimum or a key twice;
//! * some time after the last fault all that live are members of one epoch, or every one that is not says why it cannot be: fewer
//!   voters are left than it takes, or fewer members than the minimum;
//! * nobody goes on proposing then.

mod plan;
mod traffic;
mod world;

pub use plan::{scenario, Fault, Id, Plan};
pub use traffic::{traffic, Traffic};
pub use world::{describe, run, verify, watch, Report, Standings};
