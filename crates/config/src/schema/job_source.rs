//! Where jobs come from that nobody lists: a log, or the shape of one.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::{Deserialize, Deserializer, de};
use windtunnel_cluster::log::Format;
use windtunnel_cluster::placement::{BuiltIn, Locality};

use super::jobs::{Job, Parallelism, WorkloadSource, anywhere, packed};
use super::name::Name;
use super::quantity::{CalendarSpan, Duration};
use super::upkeep::{CheckpointRule, DataRule, Dues, ElasticRule, ElasticShares};

/// The jobs of a scenario.
#[derive(Clone, Debug)]
pub enum Jobs {
    /// One by one.
    List(Vec<Job>),
    /// Many.
    Source(Box<JobSource>),
}

impl Jobs {
    /// The jobs of a list; none of a source.
    pub fn list(&self) -> &[Job] {
        match self {
            Self::List(jobs) => jobs,
            Self::Source(_) => &[],
        }
    }
}

// By hand, so that a fault inside is told where it stands: an untagged enum knows only that nothing fits.
impl<'de> Deserialize<'de> for Jobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Jobs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of jobs, or a mapping with `log` or `like`")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<Jobs, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(Jobs::List)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, entries: A) -> Result<Jobs, A::Error> {
                JobSource::deserialize(MapAccessDeserializer::new(entries)).map(Box::new).map(Jobs::Source)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Jobs {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Jobs".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (list, source) = (generator.subschema_for::<Vec<Job>>(), generator.subschema_for::<JobSource>());
        json_schema!({ "anyOf": [list, source] })
    }
}

/// Jobs from a log, or drawn from the shape of one: exactly one of the keys `log` and `like`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobSource {
    /// A file with a row per job, perhaps under gzip.
    #[serde(default)]
    pub log: Option<String>,
    /// Its format.
    #[serde(default)]
    #[schemars(with = "Option<Name<Format>>")]
    pub format: Option<String>,
    /// Leave out rows with holes and count them, instead of refusing the log.
    #[serde(default)]
    pub lenient: bool,
    /// What of jobs that still ran as the log was written.
    #[serde(default)]
    pub running: RunningName,
    /// Draw jobs like these: a sheet of `data/jobs`, or a log in `format`, to whose counts, durations and gaps
    /// distributions are fitted.
    #[serde(default)]
    pub like: Option<String>,
    /// Jobs to draw; the most to take of a log.
    #[serde(default)]
    pub count: Option<u64>,
    /// Part of the cluster that the jobs would keep busy until the last is submitted: arrivals are stretched so. As the
    /// log has them if left out.
    #[serde(default)]
    pub load: Option<f64>,
    /// Other changes of the jobs.
    #[serde(default)]
    pub scale: ScaleJobs,
    /// Which GPUs each job gets, as in a list of jobs.
    #[serde(default = "packed")]
    #[schemars(with = "Name<&'static BuiltIn>")]
    pub placement: String,
    /// How close together its GPUs must be, as in a list of jobs.
    #[serde(default = "anywhere")]
    #[schemars(with = "Name<Locality>")]
    pub locality: String,
    /// Priorities drawn in these shares, instead of the log's.
    #[serde(default)]
    pub priorities: Vec<PriorityShare>,
    /// What schedulers know of durations.
    #[serde(default)]
    pub estimates: EstimatesName,
    /// Each should have ended within this many times its duration from its submission; whenever it does if left out.
    #[serde(default)]
    pub deadline: Option<f64>,
    /// How each saves its work; an interruption costs all of it if left out.
    #[serde(default)]
    pub checkpoint: Option<CheckpointRule>,
    /// What each pays when it goes on after it was stopped or interrupted; `cluster.restart` if left out.
    #[serde(default)]
    pub restart: Option<Duration>,
    /// What each loads before it first starts; nothing if left out.
    #[serde(default)]
    pub data: Option<DataRule>,
    /// How many GPUs each can do with; those that it asks for if left out.
    #[serde(default)]
    pub elastic: Option<ElasticShares>,
    /// What the jobs do on a fabric: the source says their GPUs and durations, these their operations. Each job draws one
    /// of those that fit its GPUs. Without, the jobs are durations alone (job fidelity).
    #[serde(default)]
    pub workloads: Vec<JobKind>,
    /// Jobs that wait at any time, at most: the next is submitted when one starts. No limit if left out.
    #[serde(default)]
    pub queue: Option<u32>,
    /// The run ends once so many jobs have ended; all if left out.
    #[serde(default)]
    pub ends: Option<u64>,
}

impl JobSource {
    /// What each of its jobs pays on its way.
    pub fn dues(&self) -> Dues<'_> {
        Dues { checkpoint: self.checkpoint.as_ref(), restart: self.restart, data: self.data.as_ref() }
    }

    /// A job of `kind` as a list would have it, laid out already; when it comes, how long it takes and how urgent it is are left open.
    pub fn job(
        &self,
        kind: &JobKind,
        workload: WorkloadSource,
        parallelism: Option<Parallelism>,
        elastic: Option<ElasticRule>,
    ) -> Job {
        Job {
            name: kind.name.clone(),
            workload: Some(workload),
            parallelism,
            placement: self.placement.clone(),
            iterations: kind.iterations.unwrap_or(1),
            submit: CalendarSpan(0),
            duration: None,
            gpus: None,
            priority: 0,
            locality: self.locality.clone(),
            estimate: None,
            deadline: None,
            checkpoint: self.checkpoint.clone(),
            restart: self.restart,
            data: self.data.clone(),
            elastic,
        }
    }
}

/// What some of the jobs of a source do, laid out over as many GPUs as each has: a `model` with `parallelism.dp` to match,
/// a `collective` or `flows` over all of them, a `goal` or `file` if it has as many ranks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobKind {
    /// Its jobs' names begin with this.
    pub name: String,
    /// Share of the jobs that it fits, relative to the others'.
    #[serde(default = "one_share")]
    pub share: f64,
    /// What they do, as in a list of jobs; a model's batch is `batch_per_replica`.
    pub workload: WorkloadSource,
    /// How a model is laid out; `dp` follows from the GPUs.
    #[serde(default)]
    pub parallelism: Option<Parallelism>,
    /// Sequences or samples per iteration of each data-parallel replica; of a recommendation model, of each GPU.
    #[serde(default)]
    pub batch_per_replica: Option<u64>,
    /// Iterations to run; if left out, as many as an ideal fabric does in the job's duration.
    #[serde(default)]
    pub iterations: Option<u64>,
}

const fn one_share() -> f64 {
    1.0
}

/// What schedulers know of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EstimatesName {
    /// The durations themselves.
    #[default]
    Exact,
    /// What jobs asked for, where the log says so.
    Asked,
}

/// What of jobs of which the log does not know the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunningName {
    /// They run for as long as they had as the log was written: the GPUs that they kept busy until then are, and what came
    /// after is not known.
    #[default]
    Elapsed,
    /// They are no jobs.
    LeaveOut,
}

/// How the jobs of a log are changed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaleJobs {
    /// Factor of each job's GPUs, rounded up.
    pub gpus: f64,
    /// No job has more GPUs than these.
    pub max_gpus: Option<u32>,
    /// Factor of each job's duration.
    pub duration: f64,
    /// How many times as fast jobs arrive.
    pub arrivals: f64,
    /// No job is longer than this.
    pub max_duration: Option<Duration>,
}

impl Default for ScaleJobs {
    fn default() -> Self {
        Self { gpus: 1.0, max_gpus: None, duration: 1.0, arrivals: 1.0, max_duration: None }
    }
}

/// A priority and how many jobs have it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityShare {
    /// Higher goes first.
    pub priority: i32,
    /// Share of the jobs, relative to the others'.
    pub share: f64,
}
