//! How much memory the process uses, and how much it may use.
//!
//! A program that registers [`CountingAllocator`] has an exact count. In any other program the resident memory of the
//! process is used instead. This module knows no settings and no clients: it only counts.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: millstream_server::memory::CountingAllocator = millstream_server::memory::CountingAllocator;
//! # fn main() {}
//! ```

mod allocator;
mod available;
mod count;
mod process;
mod text;

pub use allocator::CountingAllocator;
pub use available::{Available, Source};
pub use count::used_bytes;
pub use text::human;

pub(crate) use available::machine_bytes;
pub(crate) use count::{peak_bytes, refresh};
pub(crate) use process::resident_bytes;
