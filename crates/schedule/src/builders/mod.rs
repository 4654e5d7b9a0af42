//! Builders that are too heavy for Python.

mod multitree;
mod time_expanded;

pub use multitree::MultiTree;
pub use time_expanded::{Spread, TimeExpanded};
