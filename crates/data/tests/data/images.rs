//! Folders of images, as Pillow writes them.

use crate::common::{corpus, error, read_all};
use phalanx_data::{DataError, Dataset, SourceSpec, Target};
use phalanx_types::DType;
use std::path::Path;
use tempfile::TempDir;

/// A folder with images of the corpus: class, name there, name in the corpus.
pub(crate) fn folder(images: &[(&str, &str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (class, name, image) in images {
        std::fs::create_dir_all(dir.path().join(class)).unwrap();
        std::fs::copy(corpus().join("images").join(image), dir.path().join(class).join(name)).unwrap();
    }
    dir
}

fn open(dir: &Path, size: Option<[usize; 2]>) -> Result<Dataset, DataError> {
    Dataset::open(&SourceSpec { size, ..SourceSpec::file(dir) }, Path::new("."))
}

/// The pixels of the gray image in the corpus.
fn gray() -> Vec<f32> {
    (0..48).map(|v| v as f32 * 5.0).collect()
}

/// The planes of the coloured image.
fn colour() -> Vec<f32> {
    let gray = gray();
    let upside_down: Vec<f32> = gray.chunks(8).rev().flatten().copied().collect();
    let negative: Vec<f32> = gray.iter().map(|v| 255.0 - v).collect();
    [gray, upside_down, negative].concat()
}

fn assert_near(a: &[f32], b: &[f32], most: f32) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= most, "{worst} apart");
}

#[test]
fn folders_are_classes_by_name() {
    let dir = folder(&[("b", "2.png", "gray.png"), ("a", "1.PNG", "gray.png"), ("b", "1.png", "deep.png")]);
    std::fs::write(dir.path().join("b/notes.txt"), "not an image").unwrap();
    std::fs::write(dir.path().join("readme"), "not a folder").unwrap();
    let dataset = open(dir.path(), None).unwrap();
    assert_eq!(
        (dataset.fixed_len().unwrap(), dataset.x_shape(), dataset.x_dtype()),
        (3, &[1, 6, 8][..], DType::U8)
    );
    assert_eq!(dataset.classes().unwrap(), ["a", "b"]);
    assert_eq!((dataset.target(), dataset.y_dtype()), (Target::Classes, Some(DType::I64)));
    let batch = read_all(&dataset).unwrap();
    assert_eq!(batch.y, [0.0, 1.0, 1.0]);
    assert_eq!(batch.x, gray().repeat(3));
}

#[test]
fn png_of_every_kind() {
    for (image, want, most) in [
        ("colour.png", colour(), 0.0),
        ("alpha.png", colour(), 0.0),
        ("palette.png", colour(), 40.0),
        ("gray.png", gray(), 0.0),
        ("deep.png", gray(), 0.0),
        ("bits.png", gray().iter().map(|v| if *v > 100.0 { 255.0 } else { 0.0 }).collect(), 0.0),
    ] {
        let dir = folder(&[("a", "a.png", image)]);
        assert_near(&read_all(&open(dir.path(), None).unwrap()).unwrap().x, &want, most);
    }
}

#[test]
fn jpeg_of_every_kind() {
    for (image, want, most) in [
        ("gray.jpg", gray(), 4.0),
        ("colour.jpg", colour(), 12.0),
        ("progressive.jpg", colour(), 60.0),
        ("halved.jpg", colour(), 60.0),
    ] {
        // By what it is, not by what it is called.
        let dir = folder(&[("a", "a.jpg", image), ("a", "b.png", image)]);
        let x = read_all(&open(dir.path(), None).unwrap()).unwrap().x;
        assert_near(&x[..want.len()], &want, most);
        assert_eq!(x[..want.len()], x[want.len()..]);
    }
}

#[test]
fn gray_among_coloured_images_becomes_coloured() {
    let dir = folder(&[("a", "1.png", "gray.png"), ("a", "2.png", "colour.png")]);
    let dataset = open(dir.path(), None).unwrap();
    assert_eq!(dataset.x_shape(), [3, 6, 8]);
    let x = read_all(&dataset).unwrap().x;
    assert_eq!(x, [gray().repeat(3), colour()].concat());
}

#[test]
fn sizes_must_agree_or_be_said() {
    let dir = folder(&[("a", "1.png", "gray.png")]);
    let file = std::fs::File::create(dir.path().join("a/2.png")).unwrap();
    let mut encoder = png::Encoder::new(file, 3, 5);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[7; 15]).unwrap();
    let found = error(open(dir.path(), None));
    let DataError::ImageSize { expected: [6, 8], found: [5, 3], file } = found else { panic!("{found:?}") };
    assert!(file.ends_with("a/2.png"));
    let dataset = open(dir.path(), Some([4, 4])).unwrap();
    assert_eq!(dataset.x_shape(), [1, 4, 4]);
    assert_eq!(read_all(&dataset).unwrap().x[16..], [7.0; 16]);
    for size in [[0, 4], [4, usize::MAX]] {
        assert!(matches!(error(open(dir.path(), Some(size))), DataError::UselessOption { .. }));
    }
}

#[test]
fn many_images_come_in_the_order_asked_for() {
    let images: Vec<(String, &str)> =
        (0..40).map(|i| (format!("{i:02}.png"), if i % 3 == 0 { "gray.png" } else { "bits.png" })).collect();
    let images: Vec<(&str, &str, &str)> =
        images.iter().map(|(name, image)| ("a", &name[..], *image)).collect();
    let dir = folder(&images);
    let dataset = open(dir.path(), None).unwrap();
    let mut batch = phalanx_data::Batch::new();
    let indices: Vec<usize> = (0..40).rev().collect();
    dataset.read(&indices, &mut batch).unwrap();
    for (index, x) in indices.iter().zip(batch.x.chunks_exact(48)) {
        assert_eq!(x == gray(), index % 3 == 0, "{index}");
    }
    // Of several bad images the first is named.
    for bad in ["07.png", "31.png"] {
        std::fs::write(dir.path().join("a").join(bad), b"\x89PNG").unwrap();
    }
    let error = dataset.read(&(0..40).collect::<Vec<_>>(), &mut batch).unwrap_err();
    assert!(matches!(&error, DataError::Image { file, .. } if file.ends_with("07.png")), "{error:?}");
}

#[test]
fn folders_without_images_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(error(open(dir.path(), None)), DataError::NoImages { .. }));
    std::fs::create_dir(dir.path().join("a")).unwrap();
    assert!(matches!(error(open(dir.path(), None)), DataError::NoImages { .. }));
    assert!(matches!(error(open(&dir.path().join("none"), None)), DataError::Open { .. }));
}
