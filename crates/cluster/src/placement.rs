//! Which GPUs a job gets.

use windtunnel_kernel::EndpointId;

/// The GPUs that are free, host by host.
#[derive(Clone, Debug)]
pub struct FreeSet {
    free: Vec<bool>,
    per_host: usize,
    count: usize,
}

impl FreeSet {
    /// All `endpoints` free, `per_host` of them on each host.
    pub fn new(endpoints: u32, per_host: u32) -> Self {
        Self { free: vec![true; endpoints as usize], per_host: per_host as usize, count: endpoints as usize }
    }

    /// Number of free GPUs.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Number of GPUs.
    pub fn total(&self) -> usize {
        self.free.len()
    }

    /// Free GPUs in order.
    pub fn iter(&self) -> impl Iterator<Item = EndpointId> + '_ {
        self.free.iter().enumerate().filter(|(_, free)| **free).map(|(i, _)| EndpointId(i as u32))
    }

    /// Takes `endpoints`.
    pub fn take(&mut self, endpoints: &[EndpointId]) {
        for endpoint in endpoints {
            debug_assert!(self.free[endpoint.0 as usize], "an endpoint is taken twice");
            self.free[endpoint.0 as usize] = false;
        }
        self.count -= endpoints.len();
    }

    /// Gives `endpoints` back.
    pub fn give(&mut self, endpoints: &[EndpointId]) {
        for endpoint in endpoints {
            self.free[endpoint.0 as usize] = true;
        }
        self.count += endpoints.len();
    }
}

/// Chooses GPUs for a job.
pub trait Placement: Send + Sync {
    /// Name in a scenario.
    fn name(&self) -> &'static str;
    /// `ranks` free GPUs in rank order; `None` if there are not enough.
    fn place(&self, free: &FreeSet, ranks: usize) -> Option<Vec<EndpointId>>;
}

/// The first free GPUs in order: neighbouring ranks share a host.
#[derive(Clone, Copy, Debug)]
pub struct Packed;

impl Placement for Packed {
    fn name(&self) -> &'static str {
        "packed"
    }

    fn place(&self, free: &FreeSet, ranks: usize) -> Option<Vec<EndpointId>> {
        (free.count() >= ranks).then(|| free.iter().take(ranks).collect())
    }
}

/// One GPU of each host in turn: neighbouring ranks are on different hosts.
#[derive(Clone, Copy, Debug)]
pub struct Spread;

impl Placement for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn place(&self, free: &FreeSet, ranks: usize) -> Option<Vec<EndpointId>> {
        if free.count() < ranks {
            return None;
        }
        let hosts = free.free.len() / free.per_host;
        let order =
            (0..free.per_host).flat_map(|local| (0..hosts).map(move |host| host * free.per_host + local));
        Some(order.filter(|&i| free.free[i]).take(ranks).map(|i| EndpointId(i as u32)).collect())
    }
}

/// The built-in placements.
pub const PLACEMENTS: [&(dyn Placement + 'static); 2] = [&Packed, &Spread];

/// The placement named `name`.
pub fn by_name(name: &str) -> Option<&'static dyn Placement> {
    PLACEMENTS.into_iter().find(|placement| placement.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_fills_hosts_and_spread_deals_them() {
        let mut free = FreeSet::new(8, 4);
        assert_eq!(Spread.place(&free, 3), Some(vec![EndpointId(0), EndpointId(4), EndpointId(1)]));
        let packed = Packed.place(&free, 6).expect("there are 8");
        assert_eq!(packed, (0..6).map(EndpointId).collect::<Vec<_>>());
        free.take(&packed);
        assert_eq!((free.count(), Packed.place(&free, 3)), (2, None));
        free.give(&packed[..1]);
        assert_eq!(Packed.place(&free, 3), Some(vec![EndpointId(0), EndpointId(6), EndpointId(7)]));
    }
}
