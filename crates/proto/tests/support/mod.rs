//! A cluster of executors in one process, and schedules to run on it.
#![allow(dead_code, unreachable_pub)] // every test binary uses another part

pub mod cluster;
pub mod memory;
pub mod pair;
pub mod path;
pub mod play;
pub mod reference;
pub mod schedules;
