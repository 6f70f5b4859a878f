//! The formats that can be read.

windtunnel_kernel::named! {
    /// A format that can be read.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Format: "graph format" {
        EdgeList = "edge-list", "CSV with a header: `src,dst,rate,latency`, …";
        GraphMl = "graphml", "GraphML, as networkx writes it";
        NodeLink = "node-link", "node-link JSON, as networkx writes it";
        Htsim = "htsim", "the `.topo` file of htsim";
        Ns3 = "ns3", "`topology.txt` of ns-3's HPCC and SimAI forks";
        AstraSim = "astra-sim", "the network description of ASTRA-sim's analytical backends";
        Slurm = "slurm", "Slurm's `topology.conf`";
        InfiniBand = "infiniband", "what `ibnetdiscover` prints";
        Locations = "locations", "CSV with a row per host that names its switches, tier by tier (Alibaba's production traces)";
    }
}
