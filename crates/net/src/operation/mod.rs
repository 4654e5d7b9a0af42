//! One operation as its caller holds it, its schedule, and the arithmetic that the engine asks for.

pub(crate) mod compute;
pub(crate) mod op;
pub(crate) mod plans;
