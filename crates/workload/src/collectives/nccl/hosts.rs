//! Hosts that tests of NCCL's choice, steps and decomposition stand on.

use super::{Architecture, Hardware, Wires};

/// A DGX H100: eight GPUs on NVLink with sums in its switches, eight NICs of 400 Gbps.
pub(crate) const fn dgx_h100() -> Hardware {
    Hardware {
        architecture: Architecture::Hopper,
        scale_up: 370.8e9,
        scale_up_sums: true,
        scale_up_ranks: None,
        host_link: 0.0,
        memory: 2.8e12,
        nics: 8,
        nic: 50e9,
        uplink: 0.0,
        slow_leaf: false,
        channel_speed: 0.0,
        simple_trees: false,
        amd: false,
        gpus: 8,
        wire: Wires { ring: 1e-6, tree: 1e-6, far: 1e-6 },
        ll128_between: true,
        network_sums: false,
    }
}
