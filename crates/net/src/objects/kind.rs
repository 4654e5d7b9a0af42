//! The number that tells others what the bytes of an object are: element type and shape in 64 bits.
//!
//! From the lowest bit on: 5 of the element type, 4 of the number of dimensions, and of each but the last one 5 that say how
//! long it is, and so many of itself. The last follows from the size, unless there are no elements. Shapes of tensors that
//! people train fit many times over; one that does not is refused.
//!
//! A list of arrays is flat. In place of a shape its number has what its caller tells it by: lists are alike if that is equal.

use tweed_kernels::DType;
use tweed_proto::objects::Format;

const LENGTH_BITS: u32 = 5;
/// No array has so many dimensions: it is a list.
const LIST: u64 = 15;

/// So many bits tell one layout of a list from another.
const LIST_BITS: u32 = 55;

/// What the bytes of an object are.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Of its elements.
    pub dtype: DType,
    /// Of an array; of a list, the number of elements of all its arrays.
    pub shape: &'a [u64],
    /// Of a list: what tells its layout from others, in 55 bits.
    pub list: Option<u64>,
}

impl<'a> From<(DType, &'a [u64])> for Layout<'a> {
    fn from((dtype, shape): (DType, &'a [u64])) -> Layout<'a> {
        Layout { dtype, shape, list: None }
    }
}

impl Layout<'_> {
    /// The number; `None`: it does not fit.
    pub(super) fn kind(&self) -> Option<u64> {
        match self.list {
            None => kind_of(self.dtype, self.shape),
            Some(list) if list >> LIST_BITS == 0 => Some(self.dtype as u64 | LIST << 5 | list << 9),
            Some(_) => None,
        }
    }
}

/// What tells the layout of a list; `None`: it is an array.
pub fn list_of(kind: u64) -> Option<u64> {
    (kind >> 5 & 15 == LIST).then_some(kind >> 9)
}

/// The number; `None`: it does not fit.
pub(crate) fn kind_of(dtype: DType, shape: &[u64]) -> Option<u64> {
    if shape.len() >= LIST as usize {
        return None;
    }
    let mut bits = u128::from(dtype as u32) | (shape.len() as u128) << 5;
    let mut at = 9;
    for &dim in named(shape) {
        let length = 64 - dim.leading_zeros();
        if length >= 1 << LENGTH_BITS || at + LENGTH_BITS + length > 64 {
            return None;
        }
        bits |= u128::from(length) << at | u128::from(dim) << (at + LENGTH_BITS);
        at += LENGTH_BITS + length;
    }
    u64::try_from(bits).ok()
}

fn named(shape: &[u64]) -> &[u64] {
    let has_elements = shape.iter().all(|&dim| dim > 0);
    &shape[..shape.len() - usize::from(has_elements && !shape.is_empty())]
}

/// The element type; `None`: another tweed's number.
pub fn dtype_of(kind: u64) -> Option<DType> {
    DType::try_from((kind & 31) as u32).ok()
}

/// The shape of an object; a flat one if the number does not fit its size.
pub fn shape_of(format: Format) -> Vec<u64> {
    let size = dtype_of(format.kind).map_or(1, DType::size) as u64;
    let numel = format.size / size;
    if list_of(format.kind).is_some() {
        return vec![numel];
    }
    let dims = (format.kind >> 5 & 15) as usize;
    let (mut rest, mut shape) = (format.kind >> 9, Vec::new());
    let known = if numel > 0 { dims.saturating_sub(1) } else { dims };
    for _ in 0..known {
        let length = (rest & 31) as u32;
        shape.push(rest >> LENGTH_BITS & ((1 << length) - 1));
        rest = rest.checked_shr(LENGTH_BITS + length).unwrap_or(0);
    }
    if numel > 0 && dims > 0 {
        let others = shape.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
        shape.push(others.and_then(|others| numel.checked_div(others)).unwrap_or(0));
    }
    let all = shape.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
    if all == Some(numel) {
        shape
    } else {
        vec![numel]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shapes_come_back(shape in prop::collection::vec(0u64..700, 0..4), dtype in 0u32..14) {
            let dtype = DType::try_from(dtype).unwrap();
            let size = shape.iter().product::<u64>() * dtype.size() as u64;
            let kind = kind_of(dtype, &shape).unwrap();
            prop_assert_eq!(dtype_of(kind), Some(dtype));
            prop_assert_eq!(shape_of(Format { size, kind }), shape);
        }

        #[test]
        fn any_number_has_a_shape_of_all_elements(size in 0u64..1 << 40, kind in any::<u64>()) {
            let numel = size / dtype_of(kind).map_or(1, DType::size) as u64;
            prop_assert_eq!(shape_of(Format { size, kind }).iter().product::<u64>(), numel);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(kind_of(DType::F32, &[512, 512, 3, 3, 3]).is_some());
        assert!(kind_of(DType::F32, &[60_000, 60_000, 60_000, 2]).is_none());
        assert!(kind_of(DType::F32, &[1; 15]).is_none());
        let list = |of| Layout { dtype: DType::F32, shape: &[12], list: Some(of) }.kind();
        assert!(list(1 << LIST_BITS).is_none());
        let kind = list((1 << LIST_BITS) - 2).unwrap();
        assert_eq!((list_of(kind), dtype_of(kind)), (Some((1 << LIST_BITS) - 2), Some(DType::F32)));
        assert_eq!(shape_of(Format { size: 48, kind }), [12]);
        assert_eq!(shape_of(Format { size: 4, kind: kind_of(DType::F32, &[]).unwrap() }), [] as [u64; 0]);
    }
}
