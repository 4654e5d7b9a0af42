//! All instruction sets against a model that works number by number.

use proptest::prelude::*;

use super::{decode_add_with, encode_with, Form, Scheme};
use crate::isa::Isa;

/// What was written, and what was left.
#[derive(Debug, PartialEq)]
struct Written {
    scales: Vec<u32>,
    codes: Vec<u8>,
    error: Option<Vec<u32>>,
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn encoded(isa: Isa, x: &[f32], error: Option<&[f32]>, form: &Form, key: Option<u64>) -> Written {
    let mut error = error.map(<[f32]>::to_vec);
    let mut scales = vec![f32::NAN; form.scale_count(x.len(), 0)];
    let mut codes = vec![0xaa; form.code_bytes(x.len())];
    encode_with(isa, x, error.as_deref_mut(), form, key, (&mut scales, &mut codes));
    Written { scales: bits(&scales), codes, error: error.map(|error| bits(&error)) }
}

mod model {
    use std::iter::Sum;

    use super::*;

    pub(super) fn encoded(x: &[f32], error: Option<&[f32]>, form: &Form, key: Option<u64>) -> Written {
        let zeros = vec![-0.0; x.len()];
        let v: Vec<f32> = error.unwrap_or(&zeros).iter().zip(x).map(|(error, x)| error + x).collect();
        let scales: Vec<f32> = v.chunks(form.block).map(|block| scale(block, form)).collect();
        let of = |place: usize| scales[place / form.block];
        let whole: Vec<u64> =
            v.iter().enumerate().map(|(place, &v)| code(v, of(place), place, form, key)).collect();
        let left =
            v.iter().zip(&whole).enumerate().map(|(place, (v, &code))| v - decoded(code, of(place), form));
        let left: Vec<f32> = left.collect();
        Written { scales: bits(&scales), codes: packed(&whole, form), error: error.map(|_| bits(&left)) }
    }

    pub(super) fn decoded(code: u64, scale: f32, form: &Form) -> f32 {
        match form.scheme {
            Scheme::Sign if code == 1 => -scale,
            Scheme::Sign => scale,
            _ => (code as i64 - i64::from(form.levels)) as f32 * (scale / form.levels as f32),
        }
    }

    pub(super) fn unpacked(codes: &[u8], numel: usize, form: &Form) -> Vec<u64> {
        let bit = |at: usize| u64::from(codes[at / 8] >> (at % 8) & 1);
        let width = form.bits as usize;
        (0..numel).map(|place| (0..width).map(|i| bit(place * width + i) << i).sum()).collect()
    }

    fn packed(whole: &[u64], form: &Form) -> Vec<u8> {
        let mut codes = vec![0; form.code_bytes(whole.len())];
        let width = form.bits as usize;
        for at in 0..whole.len() * width {
            codes[at / 8] |= ((whole[at / width] >> (at % width) & 1) as u8) << (at % 8);
        }
        codes
    }

    fn code(v: f32, scale: f32, place: usize, form: &Form, key: Option<u64>) -> u64 {
        let levels = form.levels as f32;
        if form.scheme == Scheme::Sign {
            return u64::from(v.is_sign_negative());
        }
        let t = v * if scale > 0.0 { levels / scale } else { 0.0 };
        let q = match key {
            None => t.round_ties_even(),
            Some(key) => (t + (draw(key, place as u32) >> 8) as f32 / 16_777_216.0).floor(),
        };
        (q.clamp(-levels, levels) + levels) as u64
    }

    fn draw(key: u64, i: u32) -> u32 {
        let k = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let k = (k ^ (k >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let k = (k ^ (k >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let k = k ^ (k >> 31);
        let h = i.wrapping_mul(0x9e37_79b1).wrapping_add(k as u32);
        let h = (h ^ (h >> 16)).wrapping_mul(0x21f0_aaad) ^ (k >> 32) as u32;
        let h = (h ^ (h >> 15)).wrapping_mul(0xd35a_2d97);
        h ^ (h >> 15)
    }

    fn scale(block: &[f32], form: &Form) -> f32 {
        let squares = || block.iter().map(|&v| f64::from(v) * f64::from(v)).collect::<Vec<_>>();
        let scale = match form.scheme {
            Scheme::Sign => {
                let parts: Vec<f32> = block.iter().map(|v| v.abs() * (1.0 / 4096.0)).collect();
                (sum(&parts) * 4096.0 / block.len() as f64) as f32
            }
            Scheme::Uniform => block.iter().fold(0.0, |most, v| v.abs().max(most)),
            Scheme::Levels => sum(&squares()).sqrt() as f32,
        };
        if scale < 2_f32.powi(-120) {
            0.0
        } else {
            scale.min(3e38)
        }
    }

    fn sum<T: Copy + Sum + Into<f64>>(terms: &[T]) -> f64 {
        let lane = |run: &[T], lane: usize| run.iter().skip(lane).step_by(32).copied().sum::<T>().into();
        let run = |run: &[T]| halves((0..32).map(|j| lane(run, j)).collect());
        neighbours(terms.chunks(1024).map(run).collect())
    }

    fn halves(terms: Vec<f64>) -> f64 {
        match terms.split_at(terms.len() / 2) {
            (&[], &[only]) => only,
            (low, high) => halves(low.iter().zip(high).map(|(low, high)| low + high).collect()),
        }
    }

    fn neighbours(terms: Vec<f64>) -> f64 {
        if let [only] = terms[..] {
            return only;
        }
        neighbours(terms.chunks(2).map(|pair| pair.iter().sum()).collect())
    }
}

fn any_form() -> impl Strategy<Value = Form> {
    let block = prop_oneof![1_usize..70, Just(64), Just(1024), 1000_usize..3000];
    let grid = (prop_oneof![Just(Scheme::Uniform), Just(Scheme::Levels)], 2_u32..9, 1_u32..128);
    (any::<bool>(), grid, block).prop_map(|(sign, (scheme, bits, levels), block)| {
        if sign {
            return Form::new(Scheme::Sign, 1, block, 1).unwrap();
        }
        Form::new(scheme, bits, block, 1 + levels % ((1 << (bits - 1)) - 1)).unwrap()
    })
}

fn any_number() -> impl Strategy<Value = f32> {
    prop_oneof![
        8 => -1.0_f32..1.0,
        1 => Just(0.0),
        1 => Just(-0.0),
        1 => any::<f32>().prop_filter("a number", |number| number.is_finite()),
        1 => Just(f32::MAX),
    ]
}

/// Numbers, of which some cases have only ordinary ones: a huge one makes all others of its block zero.
fn any_numbers() -> impl Strategy<Value = Vec<f32>> {
    let numel = prop_oneof![0_usize..40, 40_usize..6000];
    let of = |number: BoxedStrategy<f32>| {
        numel.clone().prop_flat_map(move |numel| proptest::collection::vec(number.clone(), numel))
    };
    prop_oneof![of((-1.0_f32..1.0).boxed()), of(any_number().boxed())]
}

proptest! {
    #[test]
    fn every_instruction_set_writes_what_the_model_writes(
        x in any_numbers(), form in any_form(), key in any::<Option<u64>>(), fed in any::<bool>(), turn in 0_usize..50,
    ) {
        let mut error = x.clone();
        error.rotate_left(turn.min(x.len()));
        let error = fed.then_some(&error[..]);
        let expected = model::encoded(&x, error, &form, key);
        for isa in Isa::available() {
            prop_assert_eq!(&encoded(isa, &x, error, &form, key), &expected, "{:?}", isa);
        }
    }

    #[test]
    fn every_instruction_set_reads_what_the_model_reads(
        out in proptest::collection::vec(-1.0_f32..1.0, 0..5000),
        form in any_form(), first in 0_usize..3000, seed in any::<u64>(),
    ) {
        let first = first % form.block;
        let mut random = crate::tests::Values::new(seed);
        let codes: Vec<u8> = (0..form.code_bytes(out.len())).map(|_| random.next() as u8).collect();
        let scales: Vec<f32> =
            (0..form.scale_count(out.len(), first)).map(|_| (random.next() >> 40) as f32).collect();
        let whole = model::unpacked(&codes, out.len(), &form);
        let expected: Vec<f32> = (0..out.len())
            .map(|at| out[at] + model::decoded(whole[at], scales[(first + at) / form.block], &form))
            .collect();
        for isa in Isa::available() {
            let mut out = out.clone();
            decode_add_with(isa, &mut out, (&scales, &codes), &form, first);
            prop_assert_eq!(bits(&out), bits(&expected), "{:?}", isa);
        }
    }
}

#[test]
fn numbers_that_are_none_give_some_code() {
    for (scheme, width) in [(Scheme::Sign, 1), (Scheme::Uniform, 4), (Scheme::Levels, 3)] {
        let form = Form::new(scheme, width, 32, 1).unwrap();
        for isa in Isa::available() {
            let written = encoded(isa, &[f32::NAN, f32::INFINITY, 1.0], Some(&[0.0; 3]), &form, Some(7));
            assert_eq!(written.codes.len(), form.code_bytes(3));
        }
    }
}

#[test]
fn forms_that_there_are_not() {
    for (scheme, width, block, levels) in [
        (Scheme::Sign, 2, 8, 1),
        (Scheme::Sign, 1, 8, 2),
        (Scheme::Uniform, 1, 8, 1),
        (Scheme::Uniform, 9, 8, 1),
        (Scheme::Levels, 3, 8, 4),
        (Scheme::Levels, 3, 8, 0),
        (Scheme::Uniform, 8, 0, 127),
    ] {
        assert!(Form::new(scheme, width, block, levels).is_err());
    }
}

#[test]
#[should_panic(expected = "bytes of codes")]
fn slices_that_do_not_fit() {
    let form = Form::new(Scheme::Sign, 1, 8, 1).unwrap();
    super::encode(&[0.0; 9], None, &form, None, &mut [0.0; 2], &mut [0]);
}
