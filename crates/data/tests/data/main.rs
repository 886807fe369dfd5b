//! The public interface: formats, sources, orders, transformations and the loader.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;
mod formats;
mod images;
mod loader;
mod order;
mod sources;
mod transform;
