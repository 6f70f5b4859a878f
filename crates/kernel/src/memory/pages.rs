//! Large blocks lie in large pages where the system has them.
//!
//! A large network's packets, ports and queue pairs are looked up in no order. With pages of 4 KiB nearly each look-up is one of
//! the page tables too, and even what is fetched ahead waits for that.

/// Bytes of a large page, where pages are of 4 KiB.
#[cfg(target_os = "linux")]
const LARGE: usize = 2 << 20;

/// Asks the system for large pages within a block. It may refuse, and nothing but time depends on it.
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn enlarge(block: *mut u8, size: usize) {
    if size >= LARGE {
        advise(block, size);
    }
}

#[cfg(target_os = "linux")]
#[cold]
fn advise(block: *mut u8, size: usize) {
    use std::ffi::{c_int, c_void};

    unsafe extern "C" {
        fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
    }
    /// `MADV_HUGEPAGE` of `madvise(2)`.
    const HUGE: c_int = 14;

    if block.is_null() {
        return;
    }
    // Only what is whole large pages: a part of one at either end may hold other blocks.
    let before = block.align_offset(LARGE);
    let Some(whole) = size.checked_sub(before).map(|rest| rest / LARGE * LARGE).filter(|&whole| whole > 0)
    else {
        return;
    };
    // SAFETY: the range lies in a block of the caller's, and the advice changes no byte of it.
    unsafe { madvise(block.wrapping_add(before).cast(), whole, HUGE) };
}

/// Other systems choose for themselves.
#[cfg(not(target_os = "linux"))]
#[inline]
pub(super) const fn enlarge(_: *mut u8, _: usize) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// The flags of the mapping that holds `address`, as the system tells them.
    fn flags(address: usize) -> Option<String> {
        let text = fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in text.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let bounds = range.and_then(|(from, to)| {
                Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
            });
            if let Some((from, to)) = bounds {
                inside = (from..to).contains(&address);
            }
            if inside && line.starts_with("VmFlags:") {
                return Some(line.to_owned());
            }
        }
        None
    }

    /// What is whole large pages of a block is marked (`hg`), and the block keeps what it holds. Blocks of any size and place do.
    #[test]
    fn large_blocks_ask_for_large_pages() {
        let mut block: Vec<u8> = (0..5 * LARGE).map(|at| (at % 251) as u8).collect();
        let start = block.as_mut_ptr();
        for (from, size) in [(0, 0), (1, LARGE - 1), (3, LARGE), (0, 5 * LARGE), (77, 4 * LARGE + 5)] {
            enlarge(start.wrapping_add(from), size);
        }
        assert!(block.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
        enlarge(std::ptr::null_mut(), 3 * LARGE);
        if fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
            let flags = flags(start as usize + 2 * LARGE).expect("a mapping holds the block");
            assert!(flags.split(' ').any(|flag| flag == "hg"), "{flags}");
        }
    }
}
