//! `include/windtunnel_fabric.h` in Rust. A change of a layout here is a change there and of [`ABI`].

use std::ffi::{c_char, c_void};

/// Version of the header.
pub(crate) const ABI: u32 = 1;

/// Name of the exported function.
pub(crate) const SYMBOL: &str = "wt_fabric_backend";

/// A directed link.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Link {
    pub rate_bps: u64,
    pub latency_ps: u64,
    pub loss: f64,
}

/// The fabric, as it is told to a model. What is behind it for [`Setup::route`] stands after it in memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Setup {
    pub seed: u64,
    pub mtu_bytes: u64,
    pub header_bytes: u64,
    pub endpoints: u32,
    pub endpoints_per_host: u32,
    pub nics: u32,
    pub link_count: u32,
    pub links: *const Link,
    pub parameters: *const c_char,
    pub route: unsafe extern "C" fn(*const Setup, u32, u32, u32, u32, *mut u32, u32) -> i32,
}

/// A message that leaves its NIC.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(clippy::struct_field_names, reason = "the header's names")]
pub(crate) struct Message {
    pub bytes: u64,
    pub message: u32,
    pub from: u32,
    pub to: u32,
    pub nic: u32,
    pub entropy: u32,
    pub class: u8,
    pub ordered: u8,
}

/// The functions of a library as it exports them: any of them may be missing.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawTable {
    pub abi: u32,
    pub name: *const c_char,
    pub open: Option<Open>,
    pub depart: Option<Depart>,
    pub next_time: Option<NextTime>,
    pub advance: Option<Advance>,
    pub failure: Option<Explain>,
    pub close: Option<Close>,
}

pub(crate) type Open = unsafe extern "C" fn(*const Setup, *mut c_char, usize) -> *mut c_void;
pub(crate) type Depart = unsafe extern "C" fn(*mut c_void, u64, *const Message) -> i32;
pub(crate) type NextTime = unsafe extern "C" fn(*mut c_void) -> u64;
pub(crate) type Advance = unsafe extern "C" fn(*mut c_void, u64, *mut u32, u32) -> i32;
pub(crate) type Explain = unsafe extern "C" fn(*mut c_void) -> *const c_char;
pub(crate) type Close = unsafe extern "C" fn(*mut c_void);
/// Type of the exported function.
pub(crate) type Export = unsafe extern "C" fn() -> *const RawTable;
