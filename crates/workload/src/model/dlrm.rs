//! Deep-learning recommendation models: embedding tables by model parallelism, dense layers by data parallelism.
//!
//! Naumov et al. 2019, arXiv:1906.00091: dense features pass a bottom MLP, each categorical feature is a row of a table,
//! the dot products of all pairs of vectors and the bottom output enter a top MLP. Tables live whole on one rank each
//! (round-robin by descending size, so that rows balance); a rank looks up its tables for the global batch, and an
//! all-to-all hands every rank its samples' vectors ([`CollectiveKind::AllToAll`] counts the busiest rank's buffer on all,
//! which is exact when tables divide evenly). Forward, the all-to-all runs beside the bottom MLP; backward, beside the
//! bottom MLP's gradients. Gradients of the dense layers are all-reduced, the top MLP's as soon as it is complete.
//!
//! Streams: computation on 0, collectives on 1, so that both run at once.

use serde::Deserialize;
use windtunnel_kernel::{Bytes, RankId, Span, StreamId};

use super::dtype::Dtype;
use super::kernels::{Gemm, KernelModel, Streaming};
use crate::collectives::{CollectiveKind, CollectiveSpec, neighbours};
use crate::program::{Binding, CommSlot, Communicator, Dimension, ProgramBuilder, Workload};

/// Shape of a recommendation model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DlrmArchitecture {
    /// Always `dlrm`.
    pub model_type: String,
    /// Dense features of a sample.
    pub dense_features: u64,
    /// Features of a table row.
    pub embedding_dim: u64,
    /// Rows of each table.
    pub tables: Vec<u64>,
    /// Output features of the bottom MLP's layers; the last is `embedding_dim`.
    pub bottom_mlp: Vec<u64>,
    /// Output features of the top MLP's layers; the last is 1.
    pub top_mlp: Vec<u64>,
}

/// Why a recommendation model cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DlrmError {
    /// The bottom MLP must end in the width of a table row, or the vectors cannot be multiplied.
    #[error("`bottom_mlp` ends in {found}, expected `embedding_dim`: {expected}")]
    BottomWidth {
        /// Width of the last layer, 0 if there is none.
        found: u64,
        /// Width of a row.
        expected: u64,
    },
    /// A list that may not be empty is.
    #[error("`{0}` is empty")]
    Empty(&'static str),
    /// The batch does not divide over the ranks.
    #[error("`global_batch`: expected a positive multiple of the ranks: {ranks}, found `{found}`")]
    Batch {
        /// Ranks.
        ranks: u64,
        /// The batch found.
        found: u64,
    },
}

/// A recommendation model, its batch and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DlrmTraining {
    /// The model.
    pub architecture: DlrmArchitecture,
    /// Samples of an iteration over all ranks.
    pub global_batch: u64,
    /// Ranks.
    pub ranks: u32,
    /// Rows looked up per sample and table.
    pub lookups: u64,
    /// Format of dense layers, vectors on the wire and gradients.
    pub precision: Dtype,
    /// GPUs of one scale-up domain; ranks fill domains in order.
    pub domain: u32,
}

/// (inner, outer) features of an MLP's layers.
fn layers(input: u64, outputs: &[u64]) -> Vec<(u64, u64)> {
    let mut inner = input;
    outputs
        .iter()
        .map(|&outer| {
            let layer = (inner, outer);
            inner = outer;
            layer
        })
        .collect()
}

fn mlp_parameters(layers: &[(u64, u64)]) -> u64 {
    layers.iter().map(|(inner, outer)| (inner + 1) * outer).sum()
}

impl DlrmArchitecture {
    fn bottom(&self) -> Vec<(u64, u64)> {
        layers(self.dense_features, &self.bottom_mlp)
    }

    /// Features that enter the top MLP: every pair among the tables' vectors and the bottom output, and that output.
    pub fn interaction_features(&self) -> u64 {
        let vectors = self.tables.len() as u64 + 1;
        vectors * (vectors - 1) / 2 + self.embedding_dim
    }

    fn top(&self) -> Vec<(u64, u64)> {
        layers(self.interaction_features(), &self.top_mlp)
    }

    /// Parameters of the dense layers, biases included.
    pub fn dense_parameters(&self) -> u64 {
        mlp_parameters(&self.bottom()) + mlp_parameters(&self.top())
    }

    /// Parameters of the tables.
    pub fn table_parameters(&self) -> u64 {
        self.tables.iter().sum::<u64>() * self.embedding_dim
    }
}

impl DlrmTraining {
    /// Tables of each rank: the largest table first, each to the next rank in turn.
    pub fn placement(&self) -> Vec<Vec<u32>> {
        let mut order: Vec<u32> = (0..self.architecture.tables.len() as u32).collect();
        order.sort_by_key(|&table| (std::cmp::Reverse(self.architecture.tables[table as usize]), table));
        let mut ranks = vec![Vec::new(); self.ranks as usize];
        for (position, table) in order.into_iter().enumerate() {
            ranks[position % self.ranks as usize].push(table);
        }
        ranks
    }

    /// Refuses a model or batch that cannot be laid out.
    ///
    /// # Errors
    /// [`DlrmError`].
    pub fn check(&self) -> Result<(), DlrmError> {
        let model = &self.architecture;
        if model.tables.is_empty() {
            return Err(DlrmError::Empty("tables"));
        }
        if model.top_mlp.is_empty() {
            return Err(DlrmError::Empty("top_mlp"));
        }
        let found = model.bottom_mlp.last().copied().unwrap_or(0);
        if found != model.embedding_dim {
            return Err(DlrmError::BottomWidth { found, expected: model.embedding_dim });
        }
        let ranks = u64::from(self.ranks);
        if ranks == 0 || self.global_batch == 0 || !self.global_batch.is_multiple_of(ranks) {
            return Err(DlrmError::Batch { ranks, found: self.global_batch });
        }
        Ok(())
    }

    /// Bytes of the forward all-to-all as the busiest rank counts them: its tables' vectors for the global batch.
    pub fn exchange_bytes(&self) -> Bytes {
        let busiest = self.placement().iter().map(Vec::len).max().unwrap_or(0) as u64;
        Bytes::new(self.precision.bytes(busiest * self.global_batch * self.architecture.embedding_dim))
    }

    /// One iteration of every rank.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn workload(&self, kernels: &KernelModel) -> Result<Workload, DlrmError> {
        self.check()?;
        let placement = self.placement();
        let mut counts: Vec<usize> = placement.iter().map(Vec::len).collect();
        counts.dedup();
        let world: Vec<RankId> = (0..self.ranks).map(RankId).collect();
        let domain = neighbours([world.as_slice()], self.domain);
        let program = |&tables: &usize| self.program(kernels, tables as u64, domain);
        let mut workload = Workload {
            programs: counts.iter().map(program).collect(),
            communicators: vec![Communicator { name: "world".to_owned(), ranks: world }],
            ..Workload::default()
        };
        for (rank, tables) in placement.iter().enumerate() {
            let program =
                counts.iter().position(|&count| count == tables.len()).expect("counted above") as u32;
            workload.add_rank(program, &[Binding { communicator: 0, index: rank as u32 }]);
        }
        Ok(workload)
    }

    fn program(&self, kernels: &KernelModel, tables: u64, domain: u32) -> crate::Program {
        let model = &self.architecture;
        let local = self.global_batch / u64::from(self.ranks);
        let dim = model.embedding_dim;
        let vectors = model.tables.len() as u64 + 1;
        let rows = tables * self.global_batch * self.lookups;
        // Tables are kept in 32 bits.
        let lookup = kernels.streaming(Streaming::Embedding, rows, dim, rows * dim * 4 + rows * 8);
        let update = kernels.streaming(Streaming::Embedding, rows, dim, 3 * rows * dim * 4);
        let pairs = Gemm { m: vectors, n: vectors, k: dim, batch: local };
        let interaction = kernels.gemm(pairs, self.precision, self.precision);
        let interaction_back = kernels.gemm(pairs, self.precision, self.precision) * 2;
        let collective = |kind, bytes| CollectiveSpec { domain, ..CollectiveSpec::new(kind, bytes) };
        let exchange = collective(CollectiveKind::AllToAll, self.exchange_bytes());
        let all_reduce = |parameters: u64| {
            collective(CollectiveKind::AllReduce, Bytes::new(self.precision.bytes(parameters)))
        };
        let dense = model.dense_parameters();
        let optimiser = kernels.streaming(Streaming::Optimiser, dense, 1, dense * 12);

        let mut b = Stepper { builder: ProgramBuilder::new(), single: self.ranks == 1 };
        let lookup = b.calc("embedding lookup", lookup, &[]);
        let forward_exchange =
            b.collective("embedding all-to-all", exchange.clone(), Dimension::Ep, &[lookup]);
        let bottom = b.calc("bottom mlp", self.mlp_time(kernels, &model.bottom(), Pass::Forward), &[lookup]);
        let interact = b.calc("interaction", interaction, &[bottom, forward_exchange]);
        let top = b.calc("top mlp", self.mlp_time(kernels, &model.top(), Pass::Forward), &[interact]);
        let top_back =
            b.calc("top mlp gradient", self.mlp_time(kernels, &model.top(), Pass::Backward), &[top]);
        let top_reduce = b.collective(
            "top all-reduce",
            all_reduce(mlp_parameters(&model.top())),
            Dimension::Dp,
            &[top_back],
        );
        let interact_back = b.calc("interaction gradient", interaction_back, &[top_back]);
        let backward_exchange =
            b.collective("gradient all-to-all", exchange, Dimension::Ep, &[interact_back, top_reduce]);
        let bottom_time = self.mlp_time(kernels, &model.bottom(), Pass::Backward);
        let bottom_back = b.calc("bottom mlp gradient", bottom_time, &[interact_back]);
        let bottom_reduce = b.collective(
            "bottom all-reduce",
            all_reduce(mlp_parameters(&model.bottom())),
            Dimension::Dp,
            &[bottom_back, backward_exchange],
        );
        let tables_done = b.calc("embedding update", update, &[backward_exchange, bottom_back]);
        b.calc("optimiser", optimiser, &[tables_done, top_reduce, bottom_reduce]);
        b.builder.finish().expect("every edge points backwards")
    }

    fn mlp_time(&self, kernels: &KernelModel, layers: &[(u64, u64)], pass: Pass) -> Span {
        let batch = self.global_batch / u64::from(self.ranks);
        let gemm = |m, n, k| kernels.gemm(Gemm::new(m, n, k), self.precision, self.precision);
        let mut time = Span::ZERO;
        for &(inner, outer) in layers {
            time += match pass {
                Pass::Forward => gemm(batch, outer, inner),
                Pass::Backward => gemm(batch, inner, outer) + gemm(inner, outer, batch),
            };
            let bytes = self.precision.bytes(batch * outer * 2);
            time += kernels.streaming(Streaming::Activation, batch, outer, bytes);
        }
        time
    }
}

#[derive(Clone, Copy)]
enum Pass {
    Forward,
    Backward,
}

/// Operations in order; a collective of one rank is skipped and stands for what it waited for.
struct Stepper {
    builder: ProgramBuilder,
    single: bool,
}

impl Stepper {
    fn calc(&mut self, label: &str, duration: Span, after: &[u32]) -> u32 {
        let label = self.builder.label(label);
        let op = self.builder.calc(duration, StreamId(0), label);
        self.after(op, after)
    }

    fn collective(&mut self, label: &str, spec: CollectiveSpec, dimension: Dimension, after: &[u32]) -> u32 {
        if self.single {
            return after[0];
        }
        let label = self.builder.label(label);
        let op = self.builder.collective(CommSlot(0), spec, dimension, StreamId(1), label);
        self.after(op, after)
    }

    fn after(&mut self, op: u32, prerequisites: &[u32]) -> u32 {
        for (position, &prerequisite) in prerequisites.iter().enumerate() {
            if !prerequisites[..position].contains(&prerequisite) {
                self.builder.requires(op, prerequisite);
            }
        }
        op
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{GpuSheet, KernelProfile};
    use crate::program::OpKind;

    fn small(ranks: u32) -> DlrmTraining {
        DlrmTraining {
            architecture: DlrmArchitecture {
                model_type: "dlrm".to_owned(),
                dense_features: 13,
                embedding_dim: 64,
                tables: vec![100, 5000, 20, 700, 1_000_000, 3],
                bottom_mlp: vec![128, 64],
                top_mlp: vec![256, 1],
            },
            global_batch: 2048,
            ranks,
            lookups: 1,
            precision: Dtype::Fp32,
            domain: 1,
        }
    }

    fn kernels() -> KernelModel {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/gpus/a100-80.yaml"));
        let sheet = GpuSheet::parse(&text.unwrap()).unwrap();
        KernelModel::new(&sheet, Dtype::Fp32, Dtype::Fp32, KernelProfile::default()).unwrap()
    }

    #[test]
    fn parameters_and_bytes_by_hand() {
        let training = small(4);
        let bottom = 14 * 128 + 129 * 64;
        let top = (7 * 6 / 2 + 64 + 1) * 256 + 257;
        assert_eq!(training.architecture.dense_parameters(), bottom + top);
        assert_eq!(training.placement(), [vec![4, 2], vec![1, 5], vec![3], vec![0]]);
        // Two tables on the busiest rank: vectors of the global batch in 32 bits.
        assert_eq!(training.exchange_bytes(), Bytes::new(2 * 2048 * 64 * 4));
        let workload = training.workload(&kernels()).unwrap();
        assert_eq!((workload.ranks(), workload.programs.len()), (4, 2));
        let sizes: Vec<(CollectiveKind, u64)> =
            workload.programs[0].specs.iter().map(|spec| (spec.kind, spec.bytes.get())).collect();
        assert_eq!(
            sizes,
            [
                (CollectiveKind::AllToAll, 2 * 2048 * 64 * 4),
                (CollectiveKind::AllReduce, top * 4),
                (CollectiveKind::AllReduce, bottom * 4)
            ]
        );
    }

    /// The all-to-alls run beside the bottom MLP: neither waits for the other.
    #[test]
    fn exchanges_overlap_the_bottom_mlp() {
        let workload = small(4).workload(&kernels()).unwrap();
        let program = &workload.programs[0];
        let named = |label: &str| {
            program.ops.iter().position(|op| program.labels[op.label as usize] == label).unwrap() as u32
        };
        for (exchange, beside) in
            [("embedding all-to-all", "bottom mlp"), ("gradient all-to-all", "bottom mlp gradient")]
        {
            assert!(!program.requires.of(named(exchange)).contains(&named(beside)));
            assert!(!program.requires.of(named(beside)).contains(&named(exchange)));
        }
        assert!(program.requires.of(named("embedding all-to-all")).contains(&named("interaction")));
        assert_eq!(workload.programs[0].collectives_per_slot(), [4]);
        assert_eq!(workload.programs[1].collectives_per_slot(), [4]);
    }

    /// All-reduces and all-to-alls know which ranks share a domain.
    #[test]
    fn collectives_know_the_scale_up_domain() {
        for (ranks, gpus, expected) in [(4, 1, 1), (4, 2, 2), (4, 8, 4), (16, 8, 8)] {
            let training = DlrmTraining { domain: gpus, ..small(ranks) };
            let workload = training.workload(&kernels()).unwrap();
            let specs = workload.programs.iter().flat_map(|program| &program.specs);
            assert!(specs.clone().count() >= 3 && specs.clone().all(|spec| spec.domain == expected));
        }
    }

    #[test]
    fn one_rank_needs_no_collective() {
        let workload = small(1).workload(&kernels()).unwrap();
        assert!(workload.programs[0].ops.iter().all(|op| matches!(op.kind, OpKind::Calc { .. })));
    }

    #[test]
    fn bad_shapes_are_refused() {
        let mut training = small(3);
        assert_eq!(
            training.check().unwrap_err().to_string(),
            "`global_batch`: expected a positive multiple of the ranks: 3, found `2048`"
        );
        training.architecture.bottom_mlp = vec![32];
        assert_eq!(
            training.check().unwrap_err().to_string(),
            "`bottom_mlp` ends in 32, expected `embedding_dim`: 64"
        );
    }
}
