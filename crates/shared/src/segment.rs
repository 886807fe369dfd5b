//! One piece of memory that several processes map.
#![expect(unsafe_code, reason = "maps memory that another process writes or reads")]

use crate::table;
use bytes::Bytes;
use phalanx_wire::bulk::SharedPlace;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a segment is recognised by: 128 random bits in the name of its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub [u8; 16]);

impl Token {
    fn random() -> io::Result<Self> {
        let mut token = [0; 16];
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self(token))
    }

    fn file_name(self) -> String {
        format!("phalanx-{self:?}")
    }

    /// The token in what the kernel says a descriptor refers to.
    fn of_link(link: &[u8]) -> Option<Self> {
        let hex = link.strip_prefix(b"/memfd:phalanx-")?.strip_suffix(b" (deleted)")?;
        let hex = std::str::from_utf8(hex).ok().filter(|hex| hex.len() == 32)?;
        u128::from_str_radix(hex, 16).ok().map(|number| Self(number.to_be_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A mapping of shared memory.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    /// The first byte.
    pub(crate) fn base(&self) -> *const u8 {
        self.base.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: the mapping belongs to the process, not to a thread, and lives until the drop. The types around it give only
// bytes that are not written while they are borrowed.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map_shared` made this mapping, no other code unmaps it, and every reference into it borrows `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "could not unmap a segment");
        }
    }
}

/// Shared memory, mapped here for as long as this lives.
pub struct Segment {
    mapping: Mapping,
    file: OwnedFd,
    token: Token,
    /// The process that made it, as far as this process knows.
    is_own: bool,
    retired: AtomicBool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("token", &self.token)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Segment {
    /// Makes a segment, every page of it touched. Only the caller has a reference to it.
    pub(crate) fn create(len: usize) -> io::Result<Arc<Self>> {
        let (file, token) = new_file(len)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = map_shared(file.as_fd(), len, protection, Advice::LinuxPopulateWrite)?;
        Ok(Self { mapping, file, token, is_own: true, retired: AtomicBool::new(false) }.listed())
    }

    /// Maps a segment whose file was received from another process.
    ///
    /// # Errors
    /// It is no segment, could shrink, or cannot be mapped.
    pub fn adopt(file: OwnedFd) -> io::Result<Arc<Self>> {
        Self::adopt_touching(file, usize::MAX)
    }

    /// As [`Segment::adopt`], but of a segment longer than this the pages are not touched: for one that is passed on
    /// and perhaps never read here. Touching 256 MB takes 16 ms.
    ///
    /// # Errors
    /// As [`Segment::adopt`].
    pub fn adopt_touching(file: OwnedFd, longest: usize) -> io::Result<Arc<Self>> {
        let token = token_of(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if let Some(known) = table::known(token) {
            return Ok(known);
        }
        let len = sealed_len(&file)?;
        // Touching the pages of a file with holes would make memory that its owner never had.
        let has_holes = u64::try_from(rustix::fs::fstat(&file)?.st_blocks).unwrap_or(0) * 512 < len as u64;
        let touch = if has_holes || len > longest { Advice::Normal } else { Advice::LinuxPopulateRead };
        let mapping = map_shared(file.as_fd(), len, ProtFlags::READ, touch)?;
        Ok(Self { mapping, file, token, is_own: false, retired: AtomicBool::new(false) }.listed())
    }

    /// Maps the segment of a place that a process of this host named.
    ///
    /// # Errors
    /// There is no such segment, or this process may not map it: it is on another host, or belongs to another user.
    pub fn open(place: &SharedPlace) -> io::Result<Arc<Self>> {
        let token = Token(place.token);
        if let Some(known) = table::known(token) {
            return Ok(known);
        }
        Self::adopt(open_file(place, OFlags::RDONLY)?)
    }

    fn listed(self) -> Arc<Self> {
        let segment = Arc::new(self);
        table::add(&segment);
        segment
    }

    pub fn token(&self) -> Token {
        self.token
    }

    pub fn len(&self) -> usize {
        self.mapping.len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this process made it.
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Its file, for a process that is sent descriptors.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of it; the guard is dropped with the last reference to them, unless they were retired before. `None` if
    /// there are no such bytes.
    ///
    /// The caller vouches that they are not written before the guard is dropped.
    pub fn view(
        self: &Arc<Self>,
        offset: usize,
        len: usize,
        guard: impl Send + Sync + 'static,
    ) -> Option<Bytes> {
        let end = offset.checked_add(len)?;
        (end <= self.len())
            .then(|| Bytes::from_owner(View { segment: self.clone(), offset, len, guard: Some(guard) }))
    }

    /// Where this process has it.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let start = self.mapping.base.as_ptr().addr();
        start..start + self.len()
    }

    pub(crate) fn place(&self, offset: usize, len: usize) -> SharedPlace {
        SharedPlace {
            pid: std::process::id(),
            fd: self.file.as_raw_fd().unsigned_abs(),
            token: self.token.0,
            offset: offset as u64,
            len: len as u64,
        }
    }

    /// Its memory must not be written again: a process that cannot be asked may still read it.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, lives as long as `self`, and stays backed by the file, which cannot
        // shrink. While a `Region` may write to it there is no other reference; a segment of another process is not
        // written while it is lent, which is what lending means.
        unsafe { std::slice::from_raw_parts(self.mapping.base.as_ptr(), self.len()) }
    }

    /// All of it, to write.
    ///
    /// # Safety
    /// It is a segment of this process, and no other code may read or write it while the reference lives.
    #[expect(clippy::mut_from_ref, reason = "the caller vouches that there is no other reference")]
    pub(crate) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as for `bytes`; the caller vouches for the rest. A segment of this process is mapped for writing.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.base.as_ptr(), self.len()) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Before the mapping goes: other memory may lie at its address right after.
        table::remove(self);
    }
}

/// Memory of another process which that process lets this one fill.
pub struct Slot {
    mapping: Mapping,
    token: Token,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("token", &self.token).field("len", &self.mapping.len).finish()
    }
}

impl Slot {
    /// Maps the segment of a place for writing.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub fn open(place: &SharedPlace) -> io::Result<Self> {
        let file = open_file(place, OFlags::RDWR)?;
        let len = sealed_len(&file)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = map_shared(file.as_fd(), len, protection, Advice::LinuxPopulateWrite)?;
        Ok(Self { mapping, token: Token(place.token) })
    }

    pub fn token(&self) -> Token {
        self.token
    }

    pub fn len(&self) -> usize {
        self.mapping.len
    }

    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    /// Its bytes, to write. The caller vouches that their owner has asked for it: no process reads them before it is
    /// told that they are complete.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has `len` bytes, is mapped for writing, lives as long as `self` and stays backed by the
        // file, which cannot shrink. `self` is borrowed mutably, and no other reference in this process is made from it.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.base.as_ptr(), self.mapping.len) }
    }
}

/// A file in memory that keeps its length, and what it is recognised by.
pub(crate) fn new_file(len: usize) -> io::Result<(OwnedFd, Token)> {
    let token = Token::random()?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(token.file_name(), flags)?;
    // Reserves the memory: an error now is better than a signal when a page is touched.
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok((file, token))
}

/// Opens the file of a place, and only if it is the segment that the place names.
pub(crate) fn open_file(place: &SharedPlace, access: OFlags) -> io::Result<OwnedFd> {
    let wrong = || io::Error::other("the descriptor refers to something else");
    let path = format!("/proc/{}/fd/{}", place.pid, place.fd);
    // Before it is opened: opening some other file of that process might have an effect.
    if token_of(&path)? != Token(place.token) {
        return Err(wrong());
    }
    let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path.as_str(), flags, Mode::empty())?;
    // The descriptor may have been closed and its number used again in between.
    match token_of(&format!("/proc/self/fd/{}", file.as_raw_fd()))? == Token(place.token) {
        true => Ok(file),
        false => Err(wrong()),
    }
}

/// The length of a segment's file, which must not be able to shrink.
pub(crate) fn sealed_len(file: &OwnedFd) -> io::Result<usize> {
    if !rustix::fs::fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::other("a segment must be sealed against shrinking"));
    }
    let len = usize::try_from(rustix::fs::fstat(file)?.st_size).ok().filter(|len| *len > 0);
    len.ok_or_else(|| io::Error::other("a segment has no memory"))
}

/// Bytes of a segment. The guard is dropped with them, unless the segment was retired meanwhile: then a process that
/// these bytes were lent to may still read them, and the owner must not hear that they are free.
struct View<G> {
    segment: Arc<Segment>,
    offset: usize,
    len: usize,
    guard: Option<G>,
}

impl<G> Drop for View<G> {
    fn drop(&mut self) {
        if self.segment.is_retired() {
            std::mem::forget(self.guard.take());
        }
    }
}

impl<G> AsRef<[u8]> for View<G> {
    fn as_ref(&self) -> &[u8] {
        // `view` has checked the range.
        self.segment.bytes().get(self.offset..self.offset + self.len).unwrap_or_default()
    }
}

fn token_of(path: &str) -> io::Result<Token> {
    let link = rustix::fs::readlink(path, Vec::new())?;
    Token::of_link(link.as_bytes()).ok_or_else(|| io::Error::other("the descriptor refers to no segment"))
}

pub(crate) fn map_shared(
    file: BorrowedFd<'_>,
    len: usize,
    protection: ProtFlags,
    touch: Advice,
) -> io::Result<Mapping> {
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory. The file cannot shrink, as
    // the callers have checked, so the mapping stays backed.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
    let base =
        NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("the kernel gave no address"))?;
    for advice in [Advice::LinuxHugepage, touch] {
        // SAFETY: the range is the whole mapping made above; neither advice changes its contents. Both only make it
        // faster, so a kernel that refuses does no harm.
        let advised = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, advice) };
        if let Err(error) = advised {
            tracing::debug!(?advice, %error, "the kernel refused advice about shared memory");
        }
    }
    Ok(Mapping { base, len })
}
