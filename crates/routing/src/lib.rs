//! Routing by rule for simulators written in C and C++: ns-3, htsim, OMNeT++ and the like.
//!
//! The functions are declared and documented in `include/windtunnel_routing.h`; this crate is their other side. It adds
//! nothing to `windtunnel_topology` but handles, bounds checks and error texts.
//!
//! Life cycle: `wt_open` or `wt_open_text` gives a handle, `wt_close` takes it back. A handle is used by one thread at a
//! time; `wt_clone` makes another for another thread, which shares the fabric but not the faults.
//!
//! Invariants: a number out of range, a null handle or a null result is [`status::INVALID`], never undefined; no panic crosses
//! the border. What is undefined, as in any C library: a pointer that is neither null nor valid, a handle used after
//! `wt_close`, a buffer shorter than said.

#![warn(unreachable_pub)]

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use windtunnel_scenario::api::Failure;
use windtunnel_scenario::api::routing::topology_of;
use windtunnel_topology::{
    Detour, EcmpHash, Forwarder, HashFamily, Itinerary, LinkId, Node, Peer, Policy, PortSet, Reach, SwitchId,
    Target, flow_hash,
};

/// What functions return: at least 0 is an answer, below is none.
pub mod status {
    /// Done.
    pub const OK: i32 = 0;
    /// A null pointer or a number out of range.
    pub const INVALID: i32 = -1;
    /// No path at all, or only one that is forbidden.
    pub const UNREACHABLE: i32 = -2;
    /// Every next hop is dead and the fabric does not know yet.
    pub const BLACKHOLE: i32 = -3;
    /// The next hop is a detour that the rule does not know.
    pub const DETOUR: i32 = 1;
}

use status::{BLACKHOLE, DETOUR, INVALID, OK, UNREACHABLE};

/// A fabric with its faults.
#[derive(Clone, Debug)]
pub struct Routing {
    forwarder: Forwarder,
    ports: PortSet,
}

/// The far end of a port; see `wt_peer` in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerOut {
    /// 0 nothing, 1 a switch, 2 a NIC.
    kind: i32,
    /// Switch or NIC.
    id: u32,
    /// Port of the switch, or plane of the NIC.
    port: u32,
}

/// A directed link; see `wt_link` in the header.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkOut {
    rate_bps: u64,
    latency_ps: u64,
    propagation_ps: u64,
    loss: f64,
}

/// A reference to what a handle points to.
///
/// # Safety
/// `handle` is null or came from `wt_open`, and nobody else uses it now.
unsafe fn routing<'a>(handle: *mut Routing) -> Option<&'a mut Routing> {
    // SAFETY: by the contract above.
    unsafe { handle.as_mut() }
}

/// Runs `body`; a panic, which only a defect of ours can cause, becomes [`INVALID`].
fn guarded(body: impl FnOnce() -> Option<i32>) -> i32 {
    catch_unwind(AssertUnwindSafe(body)).ok().flatten().unwrap_or(INVALID)
}

/// Writes `text` with a final zero, cut to `size` bytes; returns the bytes that it needs.
///
/// # Safety
/// `buffer` is null or has room for `size` bytes.
unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) -> i32 {
    if !buffer.is_null() && size > 0 {
        let length = text.len().min(size - 1);
        // SAFETY: `length + 1 <= size` bytes are written, which the caller vouches for; a str and a fresh buffer of
        // another language do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, length);
            buffer.add(length).write(0);
        }
    }
    i32::try_from(text.len() + 1).unwrap_or(i32::MAX)
}

/// Writes `value` where `place` points, if it points anywhere.
///
/// # Safety
/// `place` is null or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Option<()> {
    if place.is_null() {
        return None;
    }
    // SAFETY: by the contract above.
    unsafe { place.write(value) };
    Some(())
}

/// # Safety
/// `text` is null or ends in a zero; `error` is null or has room for `size` bytes.
unsafe fn open(
    text: Result<String, String>,
    source: &str,
    base: &Path,
    detour: i32,
    weighted: i32,
    error: *mut c_char,
    size: usize,
) -> *mut Routing {
    let detour = if detour == 0 { Detour::Forbid } else { Detour::Allow };
    let policy = Policy { detour, weighted: weighted != 0 };
    let built = text.and_then(|text| {
        let topology = catch_unwind(AssertUnwindSafe(|| topology_of(&text, source, base)))
            .map_err(|_| "the topology could not be built".to_owned())?;
        topology.map_err(|failure| match failure {
            Failure::Input(error) => error.to_string(),
            Failure::Run(_, message) => message,
            Failure::Cluster(error) => error.to_string(),
        })
    });
    match built {
        Ok(topology) => {
            let forwarder = Forwarder::new(topology, policy);
            Box::into_raw(Box::new(Routing { forwarder, ports: PortSet::new() }))
        }
        Err(message) => {
            // SAFETY: the caller vouches for the buffer.
            unsafe { write_text(&message, error, size) };
            std::ptr::null_mut()
        }
    }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_open(
    path: *const c_char,
    detour: i32,
    weighted: i32,
    error: *mut c_char,
    size: usize,
) -> *mut Routing {
    if path.is_null() {
        // SAFETY: the caller vouches for the buffer.
        unsafe { write_text("expected a path, found a null pointer", error, size) };
        return std::ptr::null_mut();
    }
    // SAFETY: not null, and the caller vouches for its final zero.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"));
    let base = Path::new(&path).parent().unwrap_or(Path::new(""));
    // SAFETY: the caller vouches for the buffer.
    unsafe { open(text, &path, base, detour, weighted, error, size) }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_open_text(
    text: *const c_char,
    detour: i32,
    weighted: i32,
    error: *mut c_char,
    size: usize,
) -> *mut Routing {
    let text = if text.is_null() {
        Err("expected a text, found a null pointer".to_owned())
    } else {
        // SAFETY: not null, and the caller vouches for its final zero.
        Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { open(text, "topology", Path::new(""), detour, weighted, error, size) }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_clone(handle: *mut Routing) -> *mut Routing {
    // SAFETY: the caller vouches for the handle.
    match unsafe { routing(handle) } {
        Some(routing) => Box::into_raw(Box::new(routing.clone())),
        None => std::ptr::null_mut(),
    }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_close(handle: *mut Routing) {
    if !handle.is_null() {
        // SAFETY: handles are boxes of `open` and `wt_clone`, given back once.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// Declares a function that counts something of the whole fabric.
macro_rules! count {
    ($name:ident, $routing:ident => $value:expr) => {
        /// See the header.
        ///
        /// # Safety
        /// See the header.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut Routing) -> u32 {
            // SAFETY: the caller vouches for the handle.
            unsafe { routing(handle) }.map_or(0, |$routing| $value)
        }
    };
}

count!(wt_hosts, routing => routing.forwarder.topology().hosts());
count!(wt_nics, routing => routing.forwarder.topology().nics());
count!(wt_planes, routing => routing.forwarder.topology().planes());
count!(wt_switches, routing => routing.forwarder.topology().switches());
count!(wt_links, routing => routing.forwarder.topology().link_count() as u32);

impl Routing {
    fn switch(&self, switch: u32) -> Option<SwitchId> {
        (switch < self.forwarder.topology().switches()).then_some(SwitchId(switch))
    }

    fn port(&self, switch: u32, port: u32) -> Option<SwitchId> {
        let switch = self.switch(switch)?;
        (port < self.forwarder.topology().ports(switch)).then_some(switch)
    }

    fn link(&self, link: u32) -> Option<LinkId> {
        ((link as usize) < self.forwarder.topology().link_count()).then_some(LinkId(link))
    }

    fn target(&self, nic: u32, plane: u32) -> Option<Target> {
        let topology = self.forwarder.topology();
        (nic < topology.nics() && plane < topology.planes()).then(|| topology.target(nic, plane))
    }
}

/// An itinerary as a number: one more than the waypoint, 0 without one.
fn itinerary(raw: u32, routing: &Routing) -> Option<Itinerary> {
    match raw {
        0 => Some(Itinerary::DIRECT),
        next => routing.switch(next - 1).map(Itinerary::via),
    }
}

fn raw(itinerary: Itinerary) -> u32 {
    itinerary.waypoint().map_or(0, |switch| switch.0 + 1)
}

fn code(reach: Reach) -> i32 {
    match reach {
        Reach::Legal => OK,
        Reach::Detour => DETOUR,
        Reach::Blackhole => BLACKHOLE,
        Reach::Unreachable => UNREACHABLE,
    }
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_ports(handle: *mut Routing, switch: u32) -> u32 {
    // SAFETY: the caller vouches for the handle.
    let routing = unsafe { routing(handle) };
    routing.and_then(|r| r.switch(switch).map(|switch| r.forwarder.topology().ports(switch))).unwrap_or(0)
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_peer(handle: *mut Routing, switch: u32, port: u32, peer: *mut PeerOut) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let switch = routing.port(switch, port)?;
        let found = match routing.forwarder.topology().peer(switch, port) {
            None => PeerOut::default(),
            Some(Peer::Switch { switch, port }) => PeerOut { kind: 1, id: switch.0, port },
            Some(Peer::Nic { nic, plane }) => PeerOut { kind: 2, id: nic, port: plane },
        };
        // SAFETY: the caller vouches for the place.
        unsafe { put(peer, found) }.map(|()| OK)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_attachment(
    handle: *mut Routing,
    nic: u32,
    plane: u32,
    switch: *mut u32,
    port: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let target = unsafe { routing(handle) }?.target(nic, plane)?;
        // SAFETY: the caller vouches for both places.
        unsafe { put(switch, target.switch.0).and(put(port, target.port)) }.map(|()| OK)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_nic_link(handle: *mut Routing, nic: u32, plane: u32, link: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        routing.target(nic, plane)?;
        // SAFETY: the caller vouches for the place.
        unsafe { put(link, routing.forwarder.topology().nic_link(nic, plane).0) }.map(|()| OK)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_out_link(handle: *mut Routing, switch: u32, port: u32, link: *mut u32) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let switch = routing.port(switch, port)?;
        let found = routing.forwarder.topology().out_link(switch, port)?;
        // SAFETY: the caller vouches for the place.
        unsafe { put(link, found.0) }.map(|()| OK)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_link(handle: *mut Routing, link: u32, out: *mut LinkOut) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let found = routing.forwarder.topology().link(routing.link(link)?);
        let value = LinkOut {
            rate_bps: found.rate.bps(),
            latency_ps: found.latency.ps(),
            propagation_ps: found.propagation.ps(),
            loss: found.loss,
        };
        // SAFETY: the caller vouches for the place.
        unsafe { put(out, value) }.map(|()| OK)
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_link_name(
    handle: *mut Routing,
    link: u32,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let name = routing.forwarder.topology().link_name(routing.link(link)?);
        // SAFETY: the caller vouches for the buffer.
        Some(unsafe { write_text(&name, buffer, size) })
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_switch_name(
    handle: *mut Routing,
    switch: u32,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let name = routing.forwarder.topology().node_name(Node::Switch(routing.switch(switch)?));
        // SAFETY: the caller vouches for the buffer.
        Some(unsafe { write_text(&name, buffer, size) })
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn wt_flow_hash(seed: u64, src_nic: u32, dst_nic: u32, entropy: u32) -> u64 {
    flow_hash(seed, u64::from(src_nic), u64::from(dst_nic), entropy)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn wt_flow_hash_by(
    family: u32,
    switch_seeds: i32,
    seed: u64,
    src_nic: u32,
    dst_nic: u32,
    entropy: u32,
) -> u64 {
    let family = match family {
        1 => HashFamily::Crc16,
        2 => HashFamily::Crc32,
        3 => HashFamily::Xor,
        _ => HashFamily::Mixed,
    };
    let hash = EcmpHash { family, switch_seeds: switch_seeds != 0 };
    hash.flow_hash(seed, u64::from(src_nic), u64::from(dst_nic), entropy)
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_plane(handle: *mut Routing, src_nic: u32, dst_nic: u32, hash: u64) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        routing.target(src_nic, 0).and(routing.target(dst_nic, 0))?;
        let plane = routing.forwarder.plane(src_nic, dst_nic, hash);
        Some(plane.map_or(UNREACHABLE, u32::cast_signed))
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_enter(
    handle: *mut Routing,
    at: u32,
    dst_nic: u32,
    plane: u32,
    hash: u64,
    queues: *const u64,
) -> u32 {
    let entered = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        let (at, target) = (routing.switch(at)?, routing.target(dst_nic, plane)?);
        let topology = routing.forwarder.topology();
        let queue = |port: u32| {
            if queues.is_null() || port >= topology.ports(at) {
                return 0;
            }
            // SAFETY: the caller vouches for one number per port of the switch.
            unsafe { queues.add(port as usize).read() }
        };
        Some(raw(topology.enter(at, &target, hash, queue)))
    }));
    entered.ok().flatten().unwrap_or(0)
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_next_hop(
    handle: *mut Routing,
    at: u32,
    dst_nic: u32,
    plane: u32,
    hash: u64,
    state: *mut u32,
    port: *mut u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle and for `state`.
        let (routing, carried) = unsafe { (routing(handle)?, state.as_mut()?) };
        let (at, target) = (routing.switch(at)?, routing.target(dst_nic, plane)?);
        let heading = itinerary(*carried, routing)?;
        match routing.forwarder.next_hop(at, &target, heading, hash) {
            Ok(hop) => {
                *carried = raw(hop.itinerary);
                // SAFETY: the caller vouches for the place.
                unsafe { put(port, hop.port) }.map(|()| code(hop.reach))
            }
            Err(reach) => Some(code(reach)),
        }
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_equal_cost(
    handle: *mut Routing,
    at: u32,
    dst_nic: u32,
    plane: u32,
    state: *mut u32,
    ports: *mut u32,
    capacity: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle and for `state`.
        let (routing, carried) = unsafe { (routing(handle)?, state.as_mut()?) };
        let (at, target) = (routing.switch(at)?, routing.target(dst_nic, plane)?);
        let heading = itinerary(*carried, routing)?;
        let Routing { forwarder, ports: found } = routing;
        let (reach, heading) = forwarder.equal_cost(at, &target, heading, found);
        if !reach.forwards() {
            return Some(code(reach));
        }
        *carried = raw(heading);
        let room = if ports.is_null() { 0 } else { capacity as usize };
        for (index, port) in found.iter().take(room).enumerate() {
            // SAFETY: `index < capacity`, for which the caller vouches.
            unsafe { ports.add(index).write(port) };
        }
        Some(found.len().cast_signed())
    })
}

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_path(
    handle: *mut Routing,
    src_nic: u32,
    dst_nic: u32,
    hash: u64,
    links: *mut u32,
    capacity: u32,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        let routing = unsafe { routing(handle) }?;
        routing.target(src_nic, 0).and(routing.target(dst_nic, 0))?;
        if src_nic == dst_nic {
            return Some(0);
        }
        let Some(plane) = routing.forwarder.plane(src_nic, dst_nic, hash) else { return Some(UNREACHABLE) };
        let topology = routing.forwarder.topology().clone();
        let target = topology.target(dst_nic, plane);
        let room = if links.is_null() { 0 } else { capacity };
        let mut count = 0;
        let mut lay = |link: LinkId| {
            if count < room {
                // SAFETY: `count < capacity`, for which the caller vouches.
                unsafe { links.add(count as usize).write(link.0) };
            }
            count += 1;
        };
        lay(topology.nic_link(src_nic, plane));
        let mut at = topology.attachment(src_nic, plane).0;
        let mut carries = topology.enter(at, &target, hash, |_| 0);
        loop {
            let hop = match routing.forwarder.next_hop(at, &target, carries, hash) {
                Ok(hop) => hop,
                Err(reach) => return Some(code(reach)),
            };
            carries = hop.itinerary;
            lay(topology.out_link(at, hop.port)?);
            match topology.peer(at, hop.port)? {
                Peer::Switch { switch, .. } => at = switch,
                Peer::Nic { .. } => return Some(count.cast_signed()),
            }
        }
    })
}

/// Declares a function that changes what has failed.
macro_rules! change {
    ($name:ident, $check:ident, $method:ident) => {
        /// See the header.
        ///
        /// # Safety
        /// See the header.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: *mut Routing, id: u32) -> i32 {
            guarded(|| {
                // SAFETY: the caller vouches for the handle.
                let routing = unsafe { routing(handle) }?;
                let id = routing.$check(id)?;
                routing.forwarder.$method(id);
                Some(OK)
            })
        }
    };
}

change!(wt_fail_cable, link, fail_cable);
change!(wt_recover_cable, link, recover_cable);
change!(wt_fail_switch, switch, fail_switch);
change!(wt_recover_switch, switch, recover_switch);

/// See the header.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wt_converge(handle: *mut Routing) -> i32 {
    guarded(|| {
        // SAFETY: the caller vouches for the handle.
        unsafe { routing(handle) }?.forwarder.converge();
        Some(OK)
    })
}
