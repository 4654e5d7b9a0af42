//! Places of values, and how they are coded.

use proptest::prelude::*;

use super::super::bitmap::decode_bitmap_with;
use super::super::gaps::{decode_gaps_with, encode_gaps_with};
use super::super::{
    decode_bitmap, decode_gaps, encode_bitmap, gaps_room, gather, scatter_add, Outside, GAPS,
};
use super::{bits, values};
use crate::isa::Isa;
use crate::tests::Values;

/// Ascending indices with gaps of up to so many bits, and a number that they are below.
fn ascending(widths: &[u32], seed: u64) -> (Vec<i32>, usize) {
    let mut values = Values::new(seed);
    let mut next = 0_u64;
    let mut indices = Vec::new();
    for width in widths {
        next += values.next() & ((1 << width) - 1);
        if next < (1 << 31) - 200 {
            indices.push(next as i32);
        }
        next += 1;
    }
    let numel = indices.last().map_or(0, |&last| last as usize + 1) + (seed % 100) as usize;
    (indices, numel)
}

fn gaps_of(indices: &[i32], numel: usize) -> Option<Vec<u8>> {
    let encoded = |isa| {
        let mut out = vec![0xa5; gaps_room(indices.len())];
        let bytes = encode_gaps_with(isa, indices, numel, &mut out)?;
        out.truncate(bytes);
        Some(out)
    };
    let all: Vec<_> = Isa::available().map(encoded).collect();
    assert!(all.iter().all(|data| data == &all[0]), "all instruction sets give the same bytes");
    all.into_iter().next().flatten()
}

/// Packs gaps bit by bit.
fn plain_gaps(indices: &[i32]) -> Vec<u8> {
    let before = std::iter::once(-1).chain(indices.iter().copied());
    let gaps: Vec<u32> = indices.iter().zip(before).map(|(at, before)| (at - before - 1) as u32).collect();
    let width = |block: &[u32]| 32 - block.iter().fold(0, |all, gap| all | gap).leading_zeros();
    let mut bytes: Vec<u8> = gaps.chunks(GAPS).map(|block| width(block) as u8).collect();
    for block in gaps.chunks(GAPS) {
        let bits = block.iter().flat_map(|gap| (0..width(block)).map(move |bit| (gap >> bit & 1) as u8));
        let bits: Vec<u8> = bits.collect();
        bytes.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |byte, bit| byte << 1 | bit)));
    }
    bytes
}

proptest! {
    #[test]
    fn numbers_are_added_and_fetched_where_they_belong(
        numel in 1..500_usize, at in proptest::collection::vec(0..500_usize, 0..200), seed: u64,
    ) {
        let indices: Vec<i32> = at.iter().map(|at| (at % numel) as i32).collect();
        let (mut out, values) = (values("any", numel, seed), values("ordinary", at.len(), !seed));
        let mut expected = out.clone();
        for (&index, value) in indices.iter().zip(&values) {
            expected[index as usize] += value;
        }
        scatter_add(&mut out, &indices, &values).expect("all lie within");
        prop_assert_eq!(bits(&out), bits(&expected));
        let mut fetched = vec![0.0; indices.len()];
        gather(&out, &indices, &mut fetched).expect("all lie within");
        prop_assert!(indices.iter().zip(fetched).all(|(&at, x)| x.to_bits() == out[at as usize].to_bits()));
    }

    #[test]
    fn an_index_outside_is_refused(numel in 0..100_usize, before in 0..40_usize, beyond: bool, by in 0..i32::MAX - 100) {
        let bad = if beyond { numel as i32 + by } else { -1 - by };
        let mut indices = vec![0; if numel > 0 { before } else { 0 }];
        indices.push(bad);
        let (mut out, mut fetched) = (vec![1.0; numel], vec![0.0; indices.len()]);
        prop_assert_eq!(scatter_add(&mut out, &indices, &fetched), Err(Outside { numel }));
        prop_assert_eq!(gather(&out, &indices, &mut fetched), Err(Outside { numel }));
        prop_assert!(out.iter().all(|&x| x == 1.0));
    }

    #[test]
    fn gaps_come_back(widths in proptest::collection::vec(0..=25_u32, 0..200), widest in 0..=31_u32, seed: u64) {
        let widths: Vec<u32> = widths.into_iter().map(|width| width.min(widest)).collect();
        let (indices, numel) = ascending(&widths, seed);
        let data = gaps_of(&indices, numel).expect("they ascend");
        prop_assert_eq!(&data, &plain_gaps(&indices));
        for isa in Isa::available() {
            let mut out = vec![-1; indices.len()];
            prop_assert!(decode_gaps_with(isa, &data, numel, &mut out));
            prop_assert_eq!(&out, &indices);
        }
    }

    #[test]
    fn bits_come_back(widths in proptest::collection::vec(0..=4_u32, 0..300), seed: u64) {
        let (indices, numel) = ascending(&widths, seed);
        let mut data = vec![0xff; numel.div_ceil(8)];
        prop_assert!(encode_bitmap(&indices, numel, &mut data));
        let set: Vec<i32> = (0..numel as i32).filter(|&at| data[at as usize / 8] >> (at % 8) & 1 == 1).collect();
        prop_assert_eq!(&set, &indices);
        for isa in Isa::available() {
            let mut out = vec![-1; indices.len()];
            prop_assert!(decode_bitmap_with(isa, &data, numel, &mut out));
            prop_assert_eq!(&out, &indices);
            out.push(0);
            prop_assert!(!decode_bitmap_with(isa, &data, numel, &mut out));
        }
    }

    #[test]
    fn foreign_bytes_are_indices_or_are_refused(
        data in proptest::collection::vec(any::<u8>(), 0..100), count in 0..100_usize, numel in 0..800_usize,
    ) {
        let mut out = vec![-1; count];
        let accepted: Vec<bool> =
            Isa::available().map(|isa| decode_gaps_with(isa, &data, numel, &mut out)).collect();
        prop_assert!(accepted.iter().all(|&one| one == accepted[0]));
        if accepted[0] {
            prop_assert!(gaps_of(&out, numel).is_some());
        }
        if decode_bitmap(&data, numel, &mut out) {
            prop_assert!(gaps_of(&out, numel).is_some());
        }
    }
}

#[test]
fn indices_that_cannot_be_coded_are_refused() {
    for indices in [vec![-1], vec![0, 0], vec![5, 4], vec![0, 10], vec![i32::MIN, 3], vec![3, i32::MIN]] {
        assert_eq!(gaps_of(&indices, 10), None, "{indices:?}");
        assert!(!encode_bitmap(&indices, 10, &mut [0, 0]), "{indices:?}");
    }
    assert!(gaps_of(&[0, 9], 10).is_some());
}

#[test]
fn the_farthest_index_is_coded() {
    let last = i32::MAX - 1;
    let data = gaps_of(&[last], i32::MAX as usize).expect("it is below");
    let mut out = [0];
    assert!(decode_gaps(&data, i32::MAX as usize, &mut out) && out == [last]);
    assert!(!decode_gaps(&data, last as usize, &mut out));
}

#[test]
fn bytes_of_another_length_are_refused() {
    let indices: Vec<i32> = (0..100).map(|at| at * at).collect();
    let data = gaps_of(&indices, 10_000).expect("they ascend");
    let mut out = vec![0; 100];
    assert!(decode_gaps(&data, 9_802, &mut out) && !decode_gaps(&data, 9_801, &mut out));
    for wrong in [&data[1..], &data[..data.len() - 1], &[], &[&data[..], &[0]].concat()] {
        assert!(!decode_gaps(wrong, 10_000, &mut out));
    }
}
