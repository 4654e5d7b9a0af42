//! Builders that are too heavy for Python.

mod time_expanded;

pub use time_expanded::{Spread, TimeExpanded};
