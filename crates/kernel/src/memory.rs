//! How much memory the engine holds: an allocator that counts, and asks for large pages. And how much [there is](available()).
//!
//! A program that wants the figures declares it once: `#[global_allocator] static ALLOCATOR: CountingAllocator =
//! CountingAllocator;`. Elsewhere [`peak`] is zero. The counters are two relaxed atomics; they influence no result.

#![allow(unsafe_code, reason = "an allocator cannot be written without it; it forwards to the system's")]

mod available;
mod pages;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub use available::available;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a counter of bytes held and their peak, and [large pages](pages) for large blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

fn grown(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    if held > PEAK.load(Relaxed) {
        PEAK.fetch_max(held, Relaxed);
    }
}

// SAFETY: every call is forwarded unchanged to the system's allocator; the counters are ours, and advice that moves nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's contract is passed on.
        let block = unsafe { System.alloc(layout) };
        pages::enlarge(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: the caller's contract is passed on.
        let block = unsafe { System.alloc_zeroed(layout) };
        pages::enlarge(block, layout.size());
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Relaxed);
        grown(size);
        // SAFETY: the caller's contract is passed on.
        let block = unsafe { System.realloc(pointer, layout, size) };
        pages::enlarge(block, size);
        block
    }
}

/// Bytes held now; zero without the allocator.
pub fn held() -> u64 {
    HELD.load(Relaxed) as u64
}

/// Most bytes held at once since the last [`reset_peak`]; zero without the allocator.
pub fn peak() -> u64 {
    PEAK.load(Relaxed) as u64
}

/// Starts a new measurement at what is held now.
pub fn reset_peak() {
    PEAK.store(HELD.load(Relaxed), Relaxed);
}
