//! Shared buffers of switches by tier: as given, or as a data sheet has them.

use windtunnel_fabric::packet::BufferSettings;
use windtunnel_kernel::{BitRate, Bytes};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_topology::{SwitchId, Topology};
use windtunnel_workload::model::SwitchSheet;

use super::fabric::Written;
use crate::schema::{Buffer, Network};
use crate::sheets;

/// Buffers by tier, from the hosts up.
///
/// With `pfc` and without `buffers` every switch has what a data sheet's has, in proportion to its rate: of
/// `topology.switch.model`, or of the slowest sheet whose ports are as fast as the switch's and whose buffer is known.
///
/// # Errors
/// [`InputError`] for a sheet that cannot be read, or ports faster than those of every sheet.
pub(super) fn buffers(
    network: &Network,
    topology: &Topology,
    written: &Written,
    source: &str,
    evidence: &mut EvidenceList,
) -> Result<Vec<BufferSettings>, InputError> {
    if network.pfc.is_none() || !network.buffers.is_empty() {
        let given = |buffer: &Buffer| BufferSettings {
            size: buffer.size.0,
            alpha: buffer.alpha,
            reserve: buffer.reserve.map_or(Bytes::ZERO, |reserve| reserve.0),
        };
        return Ok(network.buffers.iter().map(given).collect());
    }
    let place = format!("{}: {}.switch.model", written.source, written.path);
    let model = written.keys.switch.model.as_deref();
    let names = model.map_or_else(|| sheets::names("switches"), |name| vec![name]);
    let read = |name: &str| sheets::find("switches", name, &written.base, &place)?.parsed(SwitchSheet::parse);
    let known = names.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut buffers = Vec::new();
    for ports in ports_by_tier(topology) {
        let fastest = ports.iter().copied().max().unwrap_or(BitRate::ZERO);
        let rate: u128 = ports.iter().map(|rate| u128::from(rate.bps())).sum();
        let found = known
            .iter()
            .filter_map(|sheet| Some((sheet, sheet.buffer.as_ref()?)))
            .filter(|(sheet, _)| sheet.rate.value >= fastest)
            .min_by_key(|(sheet, _)| (sheet.rate.value, sheet.capacity.value));
        let Some((sheet, buffer)) = found else {
            let wanted = fastest.bps() as f64 / 1e9;
            let message = format!("`pfc` needs buffers, and no sheet with ports of {wanted} Gbps states one");
            return Err(InputError::new(format!("{source}: network.buffers"), message)
                .hint("for example `buffers: [{size: 64 MB}]`"));
        };
        let size = u128::from(buffer.value.get()) * rate / u128::from(sheet.capacity.value.bps().max(1));
        buffers.push(BufferSettings { size: Bytes::new(size as u64), alpha: 1.0, reserve: Bytes::ZERO });
        let of = format!("{}; in proportion to a switch's rate", buffer.source);
        evidence.add(&format!("switch {}: buffer", sheet.name), buffer.evidence.name(), &of);
    }
    Ok(buffers)
}

/// Rates of the ports of the first switch of each tier, from the hosts up.
fn ports_by_tier(topology: &Topology) -> Vec<Vec<BitRate>> {
    let mut tiers: Vec<Vec<BitRate>> = Vec::new();
    for switch in (0..topology.switches()).map(SwitchId) {
        let tier = usize::from(topology.tier(switch));
        if tiers.len() <= tier {
            tiers.resize(tier + 1, Vec::new());
        }
        if tiers[tier].is_empty() {
            let links = (0..topology.ports(switch)).filter_map(|port| topology.out_link(switch, port));
            tiers[tier] = links.map(|link| topology.link(link).rate).collect();
        }
    }
    tiers
}
