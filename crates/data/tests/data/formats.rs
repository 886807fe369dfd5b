//! Files of every format, written by numpy, pandas, Arrow and Hugging Face.

use crate::common::{check_labels, corpus, error, open, open_bytes, range, read_all, spec};
use phalanx_data::{Columns, DataError, Dataset, SourceSpec, Target};
use phalanx_types::{DType, Tensor};

/// Every file of numbers holds the same samples; this is what they are.
fn check_x(dataset: &Dataset, shape: &[usize], dtype: DType) {
    assert_eq!(dataset.fixed_len().unwrap(), 4);
    assert_eq!(dataset.x_shape(), shape);
    assert_eq!(dataset.x_dtype(), dtype);
    let batch = read_all(dataset).unwrap();
    assert_eq!(batch.x, range(24));
    assert_eq!(batch.indices, [0, 1, 2, 3]);
    assert_eq!(batch.len, 4);
}

fn check_y(dataset: &Dataset) {
    assert_eq!(dataset.y_shape(), Some(&[][..]));
    assert_eq!(dataset.target(), Target::Classes);
    assert_eq!(read_all(dataset).unwrap().y, [0.0, 2.0, 1.0, 0.0]);
    check_labels(dataset, 3).unwrap();
}

#[test]
fn npy_of_every_type_and_order() {
    for (name, dtype) in [
        ("le_f4", DType::F32),
        ("be_f4", DType::F32),
        ("le_f8", DType::F64),
        ("be_f8", DType::F64),
        ("le_f2", DType::F16),
        ("u1", DType::U8),
        ("i1", DType::I8),
        ("le_i2", DType::I16),
        ("be_i2", DType::I16),
        ("le_i4", DType::I32),
        ("be_i4", DType::I32),
        ("le_i8", DType::I64),
        ("be_i8", DType::I64),
        ("le_u2", DType::U16),
        ("le_u4", DType::U32),
        ("le_u8", DType::U64),
        ("be_u8", DType::U64),
        ("fortran", DType::F32),
        ("fortran_be", DType::I16),
        ("version2", DType::F32),
        ("version3", DType::F32),
    ] {
        check_x(&open(&format!("npy/{name}.npy"), "", "").unwrap(), &[2, 3], dtype);
    }
    let bools = open("npy/bool.npy", "", "").unwrap();
    assert_eq!(read_all(&bools).unwrap().x, [0.0, 1.0].repeat(12));
}

#[test]
fn npy_with_labels_in_a_file_of_their_own() {
    let spec = SourceSpec { labels_file: Some("npy/labels.npy".into()), ..SourceSpec::file("npy/le_f4.npy") };
    let dataset = Dataset::open(&spec, &corpus()).unwrap();
    check_x(&dataset, &[2, 3], DType::F32);
    check_y(&dataset);
    assert_eq!(dataset.y_dtype(), Some(DType::I64));
}

#[test]
fn npz_stored_and_deflated() {
    for file in ["npz/stored.npz", "npz/deflated.npz"] {
        let train = open(file, "x_train", "y_train").unwrap();
        check_x(&train, &[2, 3], DType::F32);
        check_y(&train);
        check_x(&open(file, "x_test", "").unwrap(), &[2, 3], DType::F64);
    }
}

#[test]
fn npz_names_that_are_not_there_get_the_nearest() {
    let error = error(open("npz/stored.npz", "x_trian", "y_train"));
    let DataError::UnknownArray { name, have, .. } = &error else { panic!("{error:?}") };
    assert_eq!((name.as_str(), have[0].as_str()), ("x_trian", "x_train"));
    assert_eq!(error.hint().unwrap(), "did you mean \"x_train\"?");
    let text = error.to_string();
    assert!(text.starts_with("no array or column \"x_trian\", there is x_train, y_train, x_test:"), "{text}");
    let error = crate::common::error(open("npz/stored.npz", "", "y_train"));
    assert!(matches!(error, DataError::ArrayNotNamed { .. }), "{error:?}");
}

#[test]
fn idx_of_every_type_also_compressed() {
    for (name, dtype) in [
        ("u1.idx", DType::U8),
        ("i1.idx", DType::I8),
        ("i2.idx", DType::I16),
        ("i4.idx", DType::I32),
        ("f4.idx", DType::F32),
        ("f8.idx", DType::F64),
    ] {
        check_x(&open(&format!("idx/{name}"), "", "").unwrap(), &[2, 3], dtype);
    }
    for labels in ["idx/labels-idx1-ubyte", "idx/labels-idx1-ubyte.gz"] {
        let file = "idx/images-idx3-ubyte.gz";
        let spec = SourceSpec { labels_file: Some(labels.into()), ..SourceSpec::file(file) };
        let dataset = Dataset::open(&spec, &corpus()).unwrap();
        check_x(&dataset, &[2, 3], DType::U8);
        check_y(&dataset);
    }
}

#[test]
fn safetensors_of_every_type() {
    for (name, dtype) in [
        ("float32", DType::F32),
        ("float64", DType::F64),
        ("float16", DType::F16),
        ("uint8", DType::U8),
        ("int8", DType::I8),
        ("int16", DType::I16),
        ("int32", DType::I32),
        ("int64", DType::I64),
        ("uint16", DType::U16),
        ("uint32", DType::U32),
        ("uint64", DType::U64),
    ] {
        let dataset = open("safetensors/types.safetensors", name, "y").unwrap();
        check_x(&dataset, &[2, 3], dtype);
        check_y(&dataset);
    }
    // The only one besides the labels need not be named.
    check_x(&open("safetensors/two.safetensors", "", "y").unwrap(), &[2, 3], DType::F32);
}

const COLUMNS: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

fn columns(file: &str, names: &[&str], y: &str) -> SourceSpec {
    let x = Some(Columns::Many(names.iter().map(|c| (*c).to_owned()).collect()));
    SourceSpec { x, ..spec(file, "", y) }
}

#[test]
fn csv_with_and_without_names() {
    let numbers: Vec<String> = (0..6).map(|c| c.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    for (file, x, label, number) in [
        ("csv/header.csv", &COLUMNS[..], "label", "number"),
        ("csv/windows.csv", &COLUMNS[..], "label", "number"),
        ("csv/tabs.tsv", &COLUMNS[..], "label", "number"),
        ("csv/plain.csv", &numbers[..], "6", "7"),
    ] {
        let dataset = Dataset::open(&columns(file, x, label), &corpus()).unwrap();
        check_x(&dataset, &[6], DType::F32);
        assert_eq!(dataset.classes().unwrap(), ["ant", "bee", "cat"]);
        check_y(&dataset);
        let dataset = Dataset::open(&columns(file, x, number), &corpus()).unwrap();
        check_y(&dataset);
        assert_eq!(dataset.classes(), None);
    }
}

#[test]
fn csv_takes_all_columns_but_the_label() {
    let dataset = open_bytes("a.csv", b"a,b,y\n1,2,0.5\n\n 3 ,4,1\n", "", "y").unwrap();
    assert_eq!(dataset.target(), Target::Values);
    let batch = read_all(&dataset).unwrap();
    assert_eq!((batch.x, batch.y), (vec![1.0, 2.0, 3.0, 4.0], vec![0.5, 1.0]));
    let dataset = open_bytes("a.csv", b"1,2\n3,4\n", "", "").unwrap();
    assert_eq!((dataset.fixed_len().unwrap(), dataset.target()), (2, Target::None));
}

#[test]
fn csv_says_where_it_is_wrong() {
    let wrong = |text: &str, y: &str| error(open_bytes("a.csv", text.as_bytes(), "", y));
    match wrong("a,b\n1,2\n3,x4\n", "") {
        DataError::NotANumber { line: 3, column, text, .. } => {
            assert_eq!((&column[..], &text[..]), ("b", "x4"))
        }
        other => panic!("{other:?}"),
    }
    let ragged = wrong("a,b\n1,2\n1,2,3\n", "");
    assert!(matches!(ragged, DataError::Ragged { line: 3, expected: 2, found: 3, .. }), "{ragged:?}");
    assert!(matches!(wrong("a,y\n1,0\n2,nan\n", "y"), DataError::LabelNotFinite { row: 1, .. }));
    assert!(matches!(wrong("a,y\n1,0\n2,\n", "y"), DataError::MissingValue { row: 1, .. }));
    assert!(matches!(wrong("a,y\n1,0\n2,cat\n", "y"), DataError::NotANumber { line: 3, .. }));
    assert!(matches!(wrong("a,y\n,0\n", "y"), DataError::NotANumber { line: 2, .. }));
    assert!(matches!(wrong("a,b\n", ""), DataError::Empty { .. }));
    assert!(matches!(wrong("", ""), DataError::Empty { .. }));
    assert!(matches!(wrong("a,b\n1,2\n", "c"), DataError::UnknownArray { .. }));
    assert!(matches!(wrong("a,a\n1,2\n", "a"), DataError::TwiceTheColumn { .. }));
}

#[cfg(feature = "parquet")]
mod parquet {
    use super::*;

    #[test]
    fn parquet_as_pandas_writes_it() {
        let mut files = vec!["parquet/pandas.parquet", "parquet/gzip.parquet"];
        if cfg!(feature = "zstd") {
            files.push("parquet/zstd.parquet");
        }
        for file in files {
            let dataset = Dataset::open(&columns(file, &COLUMNS, "label"), &corpus()).unwrap();
            check_x(&dataset, &[6], DType::F64);
            assert_eq!(dataset.classes().unwrap(), ["ant", "bee", "cat"]);
            check_y(&dataset);
            check_y(&Dataset::open(&columns(file, &COLUMNS, "number"), &corpus()).unwrap());
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn zstd_is_named_when_it_is_missing() {
        let error = error(open("parquet/zstd.parquet", "c0", ""));
        assert!(matches!(&error, DataError::Codec { codec, .. } if codec.contains("ZSTD")), "{error:?}");
    }

    #[test]
    fn parquet_of_every_type() {
        for (name, dtype) in [
            ("int8", DType::I8),
            ("int16", DType::I16),
            ("int32", DType::I32),
            ("int64", DType::I64),
            ("uint8", DType::U8),
            ("uint16", DType::U16),
            ("uint32", DType::U32),
            ("uint64", DType::U64),
            ("float32", DType::F32),
            ("float64", DType::F64),
            ("float16", DType::F16),
        ] {
            let dataset = open("parquet/types.parquet", name, "bool").unwrap();
            assert_eq!((dataset.x_shape(), dataset.x_dtype()), (&[1][..], dtype));
            let batch = read_all(&dataset).unwrap();
            assert_eq!((batch.x, batch.y), (vec![1.0, 7.0, 13.0, 19.0], vec![0.0, 1.0, 1.0, 0.0]), "{name}");
        }
    }

    #[test]
    fn parquet_lists_are_vectors() {
        let file = "parquet/lists.parquet";
        for (name, dtype) in [("v", DType::F32), ("fixed", DType::I16)] {
            let dataset = open(file, name, "label").unwrap();
            check_x(&dataset, &[6], dtype);
            check_y(&dataset);
        }
        let labels = open(file, "label", "v").unwrap();
        assert_eq!((labels.y_shape(), labels.target()), (Some(&[6][..]), Target::Values));
        assert_eq!(read_all(&labels).unwrap().y, range(24));
        let ragged = error(open(file, "ragged", ""));
        assert!(matches!(ragged, DataError::ListLength { row: 1, expected: 1, found: 2, .. }), "{ragged:?}");
        let holes = error(open(file, "holes", ""));
        assert!(matches!(holes, DataError::MissingValue { row: 2, .. }), "{holes:?}");
    }

    #[test]
    fn parquet_of_many_pages_and_groups() {
        let dataset = open("parquet/many.parquet", "", "a").unwrap();
        let batch = read_all(&dataset).unwrap();
        assert_eq!((dataset.fixed_len().unwrap(), dataset.x_shape()), (5000, &[2][..]));
        for (row, (x, y)) in batch.x.chunks_exact(2).zip(&batch.y).enumerate() {
            assert_eq!((x, *y), (&[row as f32, -(row as f32)][..], (row % 256) as f32));
        }
    }
}

#[test]
fn options_without_meaning_are_refused() {
    for (option, spec) in [
        ("x", spec("npy/le_f4.npy", "x", "")),
        ("y", spec("idx/u1.idx", "", "y")),
        ("header", SourceSpec { header: Some(true), ..spec("npz/stored.npz", "x_train", "") }),
        ("size", SourceSpec { size: Some([1, 1]), ..spec("csv/header.csv", "", "") }),
        ("labels_file", SourceSpec { labels_file: Some("a".into()), ..spec("csv/header.csv", "", "") }),
    ] {
        let error = error(Dataset::open(&spec, &corpus()));
        assert!(matches!(error, DataError::UselessOption { option: o, .. } if o == option), "{error:?}");
    }
}

#[test]
fn labels_are_checked_with_their_rows() {
    let labels = |values: &[f32]| {
        let n = values.len() as u64;
        let x = Tensor::from_f32(vec![n, 1], &vec![0.0; values.len()]).unwrap();
        Dataset::from_arrays(x, Some(Tensor::from_f32(vec![n], values).unwrap())).unwrap()
    };
    check_labels(&labels(&[0.0, 9.0]), 10).unwrap();
    for bad in [10.0, -1.0, 0.5] {
        let found = check_labels(&labels(&[0.0, bad]), 10).unwrap_err();
        assert!(matches!(found, DataError::LabelOutOfRange { row: 1, .. }), "{found:?}");
    }
    for bad in [f32::NAN, f32::INFINITY] {
        let dataset = labels(&[0.0, 1.0, bad]);
        assert!(matches!(check_labels(&dataset, 10), Err(DataError::LabelNotFinite { row: 2, .. })));
        assert!(matches!(read_all(&dataset), Err(DataError::LabelNotFinite { row: 2, .. })));
    }
}

#[test]
fn lengths_must_agree() {
    let x = Tensor::from_f32(vec![2, 1], &[0.0; 2]).unwrap();
    let y = Tensor::from_f32(vec![3], &[0.0; 3]).unwrap();
    assert!(matches!(Dataset::from_arrays(x, Some(y)), Err(DataError::Lengths { x: 2, y: 3, .. })));
}

#[test]
fn batches_are_used_again_without_allocation() {
    let dataset = open("npz/stored.npz", "x_train", "y_train").unwrap();
    let mut batch = read_all(&dataset).unwrap();
    let before = (batch.x.as_ptr(), batch.y.as_ptr(), batch.indices.as_ptr());
    dataset.read(&[3, 1], &mut batch).unwrap();
    assert_eq!((batch.x.as_ptr(), batch.y.as_ptr(), batch.indices.as_ptr()), before);
    assert_eq!((batch.len, &batch.y[..]), (2, &[0.0, 2.0][..]));
    assert_eq!(batch.x, [&range(24)[18..], &range(12)[6..]].concat());
    assert!(matches!(dataset.read(&[4], &mut batch), Err(DataError::Index { index: 4, len: 4, .. })));
}
