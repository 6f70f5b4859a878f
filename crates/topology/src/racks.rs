//! Hosts in racks of one size, racks in pods of one size: the addresses of all shapes that are that regular.

use crate::divide::Divisor;
use crate::shape::Site;

/// A number of equal racks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Racks {
    pub(crate) count: u32,
    /// Hosts of a rack.
    pub(crate) hosts: Divisor,
    /// Racks of a pod; the last pod may have fewer.
    pub(crate) per_pod: Divisor,
}

impl Racks {
    /// Where a host stands.
    pub(crate) fn site(&self, host: u32) -> Site {
        let (rack, slot) = self.hosts.split(host);
        Site { pod: self.per_pod.quotient(rack), rack, slot, ..Site::default() }
    }

    /// The host of a place; `None` if there is none.
    pub(crate) fn host(&self, site: Site) -> Option<u32> {
        let exists = site.rack < self.count && site.slot < self.hosts.get();
        let host = exists.then(|| site.rack * self.hosts.get() + site.slot)?;
        (self.site(host) == site).then_some(host)
    }
}
