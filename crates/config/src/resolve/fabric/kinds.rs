//! Buildings whose hosts have other GPUs than `topology.host`.

use std::sync::Arc;

use windtunnel_kernel::{BitRate, Span};
use windtunnel_plan::error::InputError;
use windtunnel_plan::kinds::GpuKinds;
use windtunnel_topology::{BuildingSpec, ShapeName};
use windtunnel_workload::collectives::nccl::MOST_KINDS;
use windtunnel_workload::model::sheets::{GpuSheet, ScaleUp};

use super::{Written, derived_gpu, reduces};
use crate::schema::{BuildingHost, Host};

/// The GPUs of each building, in the order of their hosts; none where all are those of `topology.host`.
#[derive(Debug, Default)]
pub(super) struct Groups(Vec<Group>);

#[derive(Debug)]
struct Group {
    hosts: u32,
    sheet: Arc<GpuSheet>,
    /// Rate and latency between the GPUs of a host.
    links: (BitRate, Span),
    reduces: bool,
}

impl Group {
    fn is_like(&self, other: &Self) -> bool {
        (&self.sheet, self.links, self.reduces) == (&other.sheet, other.links, other.reduces)
    }
}

impl Groups {
    /// Those of the buildings in `written`; `common` is the sheet of `topology.host`.
    ///
    /// # Errors
    /// [`InputError`] for a sheet that there is not, and for a building of which none is named while others have one.
    pub(super) fn read(
        written: &Written,
        shape: ShapeName,
        host: &Host,
        common: Option<&Arc<GpuSheet>>,
    ) -> Result<Self, InputError> {
        let buildings = &written.keys.buildings;
        if shape != ShapeName::Regions || buildings.iter().all(|building| building.host.is_none()) {
            return Ok(Self::default());
        }
        let mut found = Vec::with_capacity(buildings.len());
        for (index, building) in buildings.iter().enumerate() {
            let at = |key: &str| written.at(&format!("buildings[{index}].host.{key}"));
            let own = building.host.clone().unwrap_or_default();
            let sheet = match &own.gpu {
                Some(choice) => Arc::new(derived_gpu(choice, &written.base, &at("gpu"))?),
                None => common.cloned().ok_or_else(|| {
                    let message = format!(
                        "no data sheet of the GPUs of building `{}`, while other buildings have one",
                        building.name
                    );
                    InputError::new(at("gpu"), message)
                        .hint("name one, such as `host: {gpu: A100-80}`, or `topology.host.gpu` for all that have none")
                })?,
            };
            let links = links(&own, host, &sheet);
            if links.0 == BitRate::ZERO {
                return Err(InputError::new(at("scale_up.rate"), "expected a rate above 0, found 0"));
            }
            let sums =
                own.scale_up.and_then(|given| given.reduction).unwrap_or_else(|| reduces(host, Some(&sheet)));
            found.push(Group { hosts: building.hosts, sheet, links, reduces: sums });
        }
        let mut distinct: Vec<&Group> = Vec::new();
        for group in &found {
            if !distinct.iter().any(|other| other.is_like(group)) {
                distinct.push(group);
            }
        }
        if distinct.len() > MOST_KINDS {
            let message = format!("expected at most {MOST_KINDS} kinds of GPUs, found {}", distinct.len());
            return Err(InputError::new(written.at("buildings"), message));
        }
        Ok(Self(found))
    }

    /// The sheet of the first building's GPUs.
    pub(super) fn first(&self) -> Option<Arc<GpuSheet>> {
        self.0.first().map(|group| group.sheet.clone())
    }

    /// Sheets beside the first, each once.
    pub(super) fn others(&self) -> Vec<&Arc<GpuSheet>> {
        let mut found: Vec<&Arc<GpuSheet>> = Vec::new();
        for group in self.0.iter().skip(1) {
            let known = |other: &&Arc<GpuSheet>| ***other == *group.sheet;
            if *group.sheet != *self.0[0].sheet && !found.iter().any(known) {
                found.push(&group.sheet);
            }
        }
        found
    }

    /// Tells the buildings what joins the GPUs of their hosts.
    pub(super) fn tell(&self, buildings: &mut [BuildingSpec]) {
        for (building, group) in buildings.iter_mut().zip(&self.0) {
            building.scale_up = Some(group.links);
        }
    }

    /// The kinds, on hosts of so many GPUs; `None` where all are as `topology.host` says.
    pub(super) fn kinds(&self, gpus: u32) -> Option<GpuKinds> {
        let groups = self.0.iter().map(|group| (group.hosts * gpus, group.sheet.clone(), group.reduces));
        (!self.0.is_empty()).then(|| GpuKinds::of_groups(groups))
    }
}

/// What joins the GPUs of a host: what the building says, else what `topology.host` says of all, else the building's sheet.
fn links(own: &BuildingHost, host: &Host, sheet: &GpuSheet) -> (BitRate, Span) {
    let given = own.scale_up.unwrap_or_default();
    let common = host.scale_up.clone().unwrap_or_default();
    let by_sheet: &ScaleUp = &sheet.scale_up;
    let rate = given.rate.or(common.rate).map_or_else(|| by_sheet.payload_rate(), |rate| rate.0);
    let latency = given.latency.or(common.latency).map_or(by_sheet.latency.value, |latency| latency.0);
    (rate, latency)
}
