//! The numbers and names others rely on.

use crate::dtype::{DType, ReduceOp, UnknownNumber};

/// The table that the torch backend is compiled against.
const ENGINE_H: &str = include_str!("../../../../python/tweed/torch/csrc/engine.h");

/// The number that `engine.h` gives a name.
fn number(name: &str) -> u32 {
    let mut entries =
        ENGINE_H.split([',', '{', '}', '\n']).filter_map(|entry| entry.trim().split_once(" = "));
    let (_, value) =
        entries.find(|(entry, _)| *entry == name).unwrap_or_else(|| panic!("{name} is not in engine.h"));
    value.parse().expect("a number")
}

#[test]
fn dtypes_are_numbered_as_in_the_c_header() {
    for &dtype in DType::ALL {
        assert_eq!(number(&format!("TWEED_{dtype:?}").to_uppercase()), dtype as u32);
        assert_eq!(DType::try_from(dtype as u32), Ok(dtype));
    }
    let error = DType::try_from(14).expect_err("one more than there are");
    assert_eq!(error, UnknownNumber { of: "dtype", value: 14 });
}

#[test]
fn reductions_are_numbered_as_in_the_c_header() {
    let names = ["SUM", "AVG", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"];
    for (name, &op) in names.iter().zip(ReduceOp::ALL) {
        assert_eq!(number(&format!("TWEED_{name}")), op as u32);
        assert_eq!(ReduceOp::try_from(op as u32), Ok(op));
    }
    assert!(ReduceOp::try_from(9).is_err());
}

#[test]
fn names_are_torchs() {
    let dtypes: Vec<_> = DType::ALL.iter().map(DType::to_string).collect();
    let expected =
        "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool bytes";
    assert_eq!(dtypes.join(" "), expected);
    assert_eq!(ReduceOp::Prod.to_string(), "PRODUCT");
}

#[test]
fn sizes_are_those_of_the_names() {
    for dtype in DType::ALL {
        let bits: usize = dtype.to_string().trim_matches(char::is_alphabetic).parse().unwrap_or(8);
        assert_eq!(dtype.size() * 8, bits, "{dtype}");
    }
}

#[test]
fn bitwise_is_for_integers_and_bool_and_averages_are_for_numbers() {
    for &dtype in DType::ALL {
        let reducible = dtype != DType::Bytes;
        assert_eq!(ReduceOp::Sum.supports(dtype).is_ok(), reducible);
        assert_eq!(ReduceOp::BitXor.supports(dtype).is_ok(), reducible && !dtype.is_float());
        assert_eq!(ReduceOp::Avg.supports(dtype).is_ok(), reducible && dtype != DType::Bool);
    }
}
