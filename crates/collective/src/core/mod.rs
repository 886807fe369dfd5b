//! Pure code: no clock, thread or socket.

pub(crate) mod adasum;
pub(crate) mod buckets;
pub(crate) mod compress;
pub(crate) mod hosts;
pub(crate) mod joined;
pub(crate) mod mark;
pub(crate) mod numbers;
pub(crate) mod parts;
pub(crate) mod schedule;
pub(crate) mod select;
pub(crate) mod traffic;
pub(crate) mod words;
