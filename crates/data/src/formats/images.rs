//! A folder with a subfolder of images for each class, decoded on demand.

use super::image::{self, Header};
use super::resize::{self, cover};
use crate::error::{DataError, Origin};
use crate::limit::{Budget, Limit};
use crate::source::{Extent, LabelSchema, Rows, Schema, Source};
use crate::spec::Format;
use phalanx_types::DType;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Images that are opened on demand.
#[derive(Debug)]
pub(super) struct Images {
    root: PathBuf,
    /// The folder of each class.
    folders: Vec<OsString>,
    files: Vec<ImageFile>,
    /// Channels, height, width.
    shape: [usize; 3],
    /// Whether images have to be scaled to that shape.
    scaled: bool,
    /// The most memory that one image may take.
    limit: Limit,
}

/// An image: the index of its folder and its name there.
type ImageFile = (u32, Box<Path>);

/// The longest side to which an image can be scaled.
const LONGEST_SIDE: usize = 1 << 14;

pub(super) fn open(root: &Path, size: Option<[usize; 2]>, limit: Limit) -> Result<Images, DataError> {
    let (folders, files) = list(root)?;
    if files.is_empty() {
        return Err(DataError::NoImages { dir: root.to_owned() });
    }
    if size.is_some_and(|size| size.iter().any(|side| *side == 0 || *side > LONGEST_SIDE)) {
        return Err(DataError::UselessOption {
            option: "size",
            format: Format::Images,
            file: root.to_owned(),
        });
    }
    let scaled = size.is_some();
    let mut images = Images { root: root.to_owned(), folders, files, shape: [1, 1, 1], scaled, limit };
    let headers = images.headers()?;
    images.check_sizes(&headers, size)?;
    let first = headers.first().map_or([1, 1], |header| header.size);
    let expected = size.unwrap_or(first);
    if size.is_none()
        && let Some(other) = headers.iter().position(|header| header.size != first)
    {
        let found = headers.get(other).map_or(first, |header| header.size);
        return Err(DataError::ImageSize { expected, found, file: images.path(other) });
    }
    let channels = if headers.iter().any(|header| header.colour) { 3 } else { 1 };
    images.shape = [channels, expected[0], expected[1]];
    Ok(images)
}

/// The folders, and the images in each, by name.
fn list(root: &Path) -> Result<(Vec<OsString>, Vec<ImageFile>), DataError> {
    let mut folders: Vec<OsString> = Vec::new();
    for entry in entries(root)? {
        let hidden = entry.to_string_lossy().starts_with('.');
        if !hidden && root.join(&entry).is_dir() {
            folders.push(entry);
        }
    }
    let mut files = Vec::new();
    for (class, folder) in folders.iter().enumerate() {
        for name in entries(&root.join(folder))? {
            if is_image(Path::new(&name)) {
                files.push((class as u32, Path::new(&name).into()));
            }
        }
    }
    Ok((folders, files))
}

fn entries(dir: &Path) -> Result<Vec<OsString>, DataError> {
    let names = std::fs::read_dir(dir).and_then(|dir| dir.map(|entry| Ok(entry?.file_name())).collect());
    let mut names: Vec<OsString> =
        names.map_err(|source| DataError::Open { file: dir.to_owned(), source })?;
    names.sort();
    Ok(names)
}

fn is_image(name: &Path) -> bool {
    let known =
        |e: &std::ffi::OsStr| ["png", "jpg", "jpeg"].iter().any(|known| e.eq_ignore_ascii_case(known));
    name.extension().is_some_and(known) && !name.to_string_lossy().starts_with('.')
}

impl Images {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn origin(&self) -> Origin {
        Origin::file(&self.root)
    }

    fn path(&self, index: usize) -> PathBuf {
        let (class, name) = self.files.get(index).map_or((0, Path::new("")), |(class, name)| (*class, name));
        self.folders.get(class as usize).map_or_else(PathBuf::new, |folder| self.root.join(folder).join(name))
    }

    fn headers(&self) -> Result<Vec<Header>, DataError> {
        let mut headers = vec![Header { size: [0, 0], colour: false }; self.len()];
        let indices: Vec<usize> = (0..self.len()).collect();
        in_parallel(&indices, &mut headers, 1, &AtomicBool::new(false), |index, out| {
            if let [out] = out {
                *out = image::header(&self.path(index))?;
            }
            Ok(())
        })?;
        Ok(headers)
    }

    /// Refuses images that would take too much, as many at once as there are threads.
    fn check_sizes(&self, headers: &[Header], size: Option<[usize; 2]>) -> Result<(), DataError> {
        let implied = |header: &Header| {
            let scaling = size.map_or(0, |size| resize::implied(header.size, size));
            header.implied().saturating_add(scaling)
        };
        let Some((index, most)) = headers.iter().map(implied).enumerate().max_by_key(|(_, most)| *most)
        else {
            return Ok(());
        };
        let at_once = threads().min(self.len()) as u64;
        let checked = Budget::new(self.limit).check(most.saturating_mul(at_once));
        checked.map_err(|fault| image::too_much(&self.path(index), fault))
    }

    fn no_such(&self, index: usize) -> DataError {
        DataError::Index { index, len: self.len(), origin: self.origin() }
    }

    fn read_one(&self, index: usize, out: &mut [f32]) -> Result<(), DataError> {
        if index >= self.len() {
            return Err(self.no_such(index));
        }
        let [channels, height, width] = self.shape;
        let mut pixels = image::decode(&self.path(index), channels, self.limit)?;
        if self.scaled {
            let scaled = cover(&pixels, [height, width]);
            pixels = scaled.map_err(|fault| image::too_much(&self.path(index), fault))?;
        } else if pixels.size != [height, width] {
            let (expected, found) = ([height, width], pixels.size);
            return Err(DataError::ImageSize { expected, found, file: self.path(index) });
        }
        for (channel, plane) in out.chunks_exact_mut(height * width).enumerate() {
            let values = pixels.data.iter().skip(channel).step_by(channels);
            for (out, value) in plane.iter_mut().zip(values) {
                *out = f32::from(*value);
            }
        }
        Ok(())
    }
}

impl Source for Images {
    fn schema(&self) -> Schema {
        let classes: Vec<String> =
            self.folders.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        Schema::new(self.shape, self.origin())
            .with_dtype(DType::U8)
            .with_labels(LabelSchema::named_classes(classes))
    }

    fn extent(&self) -> Extent {
        Extent::Fixed(self.len())
    }

    /// Decodes the images on several threads, until `stop` is set.
    fn read(&self, indices: &[usize], rows: Rows<'_>, stop: &AtomicBool) -> Result<(), DataError> {
        if let Some(x) = rows.x {
            let size = self.shape.iter().product();
            in_parallel(indices, x, size, stop, |index, out| self.read_one(index, out))?;
        }
        for (index, label) in indices.iter().zip(rows.y.unwrap_or_default()) {
            let (class, _) = self.files.get(*index).ok_or_else(|| self.no_such(*index))?;
            *label = *class as f32;
        }
        Ok(())
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs `task` for each index with its `size` elements of `out`, on as many threads as there are processors.
///
/// Of several errors the first by index counts, so that the result is deterministic.
fn in_parallel<T: Send>(
    indices: &[usize],
    out: &mut [T],
    size: usize,
    stop: &AtomicBool,
    work: impl Fn(usize, &mut [T]) -> Result<(), DataError> + Sync,
) -> Result<(), DataError> {
    let run = |indices: &[usize], out: &mut [T]| {
        let mut pairs = indices.iter().zip(out.chunks_exact_mut(size.max(1)));
        pairs.try_for_each(
            |(index, out)| {
                if stop.load(Ordering::Relaxed) { Ok(()) } else { work(*index, out) }
            },
        )
    };
    let share = indices.len().div_ceil(threads()).max(1);
    if indices.len() <= share {
        return run(indices, out);
    }
    thread::scope(|scope| {
        let parts = indices.chunks(share).zip(out.chunks_mut(share * size.max(1)));
        let parts: Vec<_> = parts.map(|(indices, out)| scope.spawn(|| run(indices, out))).collect();
        let mut result = Ok(());
        for part in parts {
            let part = part.join().unwrap_or(Err(DataError::ReaderDied));
            result = result.and(part);
        }
        result
    })
}
