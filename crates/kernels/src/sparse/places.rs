//! Values at given places: added, and fetched.

use thiserror::Error;

/// How far ahead memory is asked for: the processor cannot foresee where an index leads.
const AHEAD: usize = 32;

/// An index that leads outside of a buffer. Nothing was written.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("an index is outside of 0 to {} - 1", .numel)]
pub struct Outside {
    /// Values of the buffer.
    pub numel: usize,
}

fn check(indices: &[i32], numel: usize) -> Result<(), Outside> {
    // Negative ones become very large.
    let largest = indices.iter().fold(0, |largest: u32, &index| largest.max(index as u32));
    if indices.is_empty() || (largest as usize) < numel.min(1 << 31) {
        Ok(())
    } else {
        Err(Outside { numel })
    }
}

/// Adds `values[i]` to `out[indices[i]]`, one after the other.
///
/// Cost: the touched lines of `out`.
///
/// # Errors
/// If an index leads outside of `out`; then it is as it was.
///
/// # Panics
/// If there are not as many values as indices.
pub fn scatter_add(out: &mut [f32], indices: &[i32], values: &[f32]) -> Result<(), Outside> {
    assert_eq!(indices.len(), values.len(), "a value per index");
    check(indices, out.len())?;
    for (i, (&index, value)) in indices.iter().zip(values).enumerate() {
        prefetch(out, indices[(i + AHEAD).min(indices.len() - 1)] as usize);
        // SAFETY: all indices have been checked.
        unsafe { *out.get_unchecked_mut(index as usize) += value };
    }
    Ok(())
}

/// Copies `x[indices[i]]` to `out[i]`.
///
/// Cost: the touched lines of `x`.
///
/// # Errors
/// If an index leads outside of `x`; then `out` is as it was.
///
/// # Panics
/// If `out` has another length than `indices`.
pub fn gather(x: &[f32], indices: &[i32], out: &mut [f32]) -> Result<(), Outside> {
    assert_eq!(indices.len(), out.len(), "a value per index");
    check(indices, x.len())?;
    for (i, (&index, out)) in indices.iter().zip(out).enumerate() {
        prefetch(x, indices[(i + AHEAD).min(indices.len() - 1)] as usize);
        // SAFETY: all indices have been checked.
        *out = unsafe { *x.get_unchecked(index as usize) };
    }
    Ok(())
}

/// Asks memory for the line that a number lies in, if there is that number.
#[inline(always)]
pub(super) fn prefetch(x: &[f32], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(number) = x.get(index) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(number).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (x, index);
}
