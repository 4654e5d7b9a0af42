//! Every dtype, reduction and instruction set against a model that is too simple to be wrong.

mod buffer;
mod fold;
mod model;
mod numbers;
mod tables;

pub(crate) use buffer::Values;

use crate::dtype::{DType, ReduceOp};

/// Every pair that has a meaning.
fn pairs() -> impl Iterator<Item = (DType, ReduceOp)> {
    let all = DType::ALL.iter().flat_map(|&dtype| ReduceOp::ALL.iter().map(move |&op| (dtype, op)));
    all.filter(|&(dtype, op)| op.supports(dtype).is_ok())
}
