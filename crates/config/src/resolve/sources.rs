//! Where the operations of a job come from: each source with the key of a workload that asks for it, and what reads it.
//!
//! A new source is a file with a constant [`Source`], and a line of [`SOURCES`].

use windtunnel_kernel::registry::Entry;
use windtunnel_kernel::{RankId, StreamId};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::collectives::{CollectiveSpec, Plan, Whole, neighbours};
use windtunnel_workload::program::{Binding, Communicator};
use windtunnel_workload::{CommSlot, Dimension, ProgramBuilder, Workload};
use windtunnel_workload::{compact, goal, handwritten};

use super::context::{Built, Context};
use super::names::list;
use super::{flows, limits, model};
use crate::schema::{CollectiveJob, Job, Name, WorkloadSource};
use crate::sheets;

/// What a source reads.
pub struct Asked<'a> {
    /// The workload as it is written.
    pub written: &'a WorkloadSource,
    /// Its job.
    pub job: &'a Job,
    /// What the job stands in.
    pub context: &'a Context<'a>,
    /// The workload's place for messages.
    pub place: &'a str,
}

impl Asked<'_> {
    /// The file that the key of `source` names, which is there.
    fn file(&self, file: &str, source: &Source) -> Result<std::path::PathBuf, InputError> {
        let path = self.context.base.join(file);
        sheets::present(&path, &format!("{}.{}", self.place, source.entry.name))?;
        Ok(path)
    }
}

/// A source of operations.
pub struct Source {
    /// The key of a workload that asks for it, and a line about it.
    pub entry: Entry,
    /// Whether a workload asks for it.
    pub given: fn(&WorkloadSource) -> bool,
    /// Reads it, where it is asked for.
    pub read: fn(&Asked<'_>, &mut EvidenceList) -> Result<Built, InputError>,
}

/// All, in the order in which they are listed.
pub const SOURCES: [&Source; 5] = [&MODEL, &GOAL, &FILE, &COLLECTIVE, &FLOWS];

windtunnel_kernel::table! { Source: "source of work", SOURCES }

const MODEL: Source = Source {
    entry: Entry::new("model", "a model by name or as a path of a `config.json`, trained"),
    given: |written| written.model.is_some(),
    read: |asked, evidence| {
        let name = asked.written.model.as_deref().unwrap_or_default();
        model::build(name, asked.written, asked.job, asked.context, evidence)
    },
};

const GOAL: Source = Source {
    entry: Entry::new("goal", "a GOAL file, text or binary"),
    given: |written| written.goal.is_some(),
    read: |asked, evidence| {
        let file = asked.written.goal.as_deref().unwrap_or_default();
        let options = goal::ReadOptions { labels: true };
        let workload = goal::open_with(&asked.file(file, &GOAL)?, options)
            .map_err(|error| InputError::new("", error.to_string()))?;
        evidence.add("workload", "given", &format!("GOAL file {file}"));
        Ok(Built::plain(workload))
    },
};

const FILE: Source = Source {
    entry: Entry::new("file", "a hand-written workload in JSON lines, or a compact one (`.wtw`)"),
    given: |written| written.file.is_some(),
    read: |asked, evidence| {
        let file = asked.written.file.as_deref().unwrap_or_default();
        let domain = asked.context.fabric.topology.scale_up_size();
        let path = asked.file(file, &FILE)?;
        let refused = |error: String| InputError::new("", error);
        let (workload, what) = if path.extension().is_some_and(|extension| extension == "wtw") {
            (compact::read(&path, domain).map_err(|error| refused(error.to_string()))?, "compact")
        } else {
            (handwritten::read(&path, domain).map_err(|error| refused(error.to_string()))?, "hand-written")
        };
        evidence.add("workload", "given", &format!("{what} file {file}"));
        Ok(Built::plain(workload))
    },
};

const COLLECTIVE: Source = Source {
    entry: Entry::new("collective", "one collective over all ranks"),
    given: |written| written.collective.is_some(),
    read: |asked, evidence| {
        let collective = asked.written.collective.as_ref().expect("it is asked for");
        evidence.add("workload", "given", "the scenario's traffic");
        collective_workload(collective, asked.context, &format!("{}.collective", asked.place))
            .map(Built::plain)
    },
};

const FLOWS: Source = Source {
    entry: Entry::new("flows", "independent messages"),
    given: |written| written.flows.is_some(),
    read: |asked, evidence| {
        let written = asked.written.flows.as_ref().expect("it is asked for");
        evidence.add("workload", "given", "the scenario's traffic");
        let Asked { context, place, .. } = asked;
        let ranks = written.ranks.unwrap_or_else(|| context.gpus());
        let seed = context.scenario.seed;
        if let Some(pattern) = written.pattern {
            limits::pattern(
                pattern,
                ranks,
                asked.job.duration.is_some(),
                context,
                &format!("{place}.flows"),
            )?;
        }
        let list = flows::flows(written, ranks, seed, context.base, &format!("{place}.flows"))?;
        Ok(Built::plain(flows::workload(&list, ranks)))
    },
};

/// The source that a workload asks for.
///
/// # Errors
/// [`InputError`] for a workload with no source of work, or several.
pub fn asked_for(written: &WorkloadSource, place: &str) -> Result<&'static Source, InputError> {
    let given: Vec<&'static Source> = SOURCES.into_iter().filter(|source| (source.given)(written)).collect();
    let names = |sources: &[&Source]| sources.iter().map(|source| source.entry.name).collect::<Vec<_>>();
    match given.as_slice() {
        [source] => Ok(source),
        [] => {
            let known = list(names(&SOURCES), "and");
            Err(InputError::new(place, format!("expected one of {known}, found none")))
        }
        several => {
            let message = format!("expected one source of work, found `{}`", names(several).join("` and `"));
            Err(InputError::new(place, message))
        }
    }
}

/// A job of one collective.
fn collective_workload(
    job: &CollectiveJob,
    context: &Context<'_>,
    place: &str,
) -> Result<Workload, InputError> {
    let ranks = job.ranks.unwrap_or_else(|| context.gpus());
    if ranks == 0 {
        return Err(InputError::new(format!("{place}.ranks"), "expected at least 1 rank, found 0"));
    }
    let Name(Whole(kind)) = job.kind;
    let mut spec = CollectiveSpec::new(kind, job.bytes.0);
    spec.algorithm = job.algorithm.0;
    spec.form = job.form.0;
    spec.outstanding = job.outstanding;
    let members: Vec<RankId> = (0..ranks).map(RankId).collect();
    spec.domain = neighbours([members.as_slice()], context.fabric.topology.scale_up_size());
    Plan::new(&spec, ranks).map_err(|error| InputError::new(place, error.to_string()))?;
    let mut builder = ProgramBuilder::new();
    let label = builder.label(kind.name());
    builder.collective(CommSlot(0), spec, Dimension::Other, StreamId(0), label);
    let mut workload =
        Workload { programs: vec![builder.finish().expect("one operation")], ..Workload::default() };
    let members = (0..ranks).map(RankId).collect();
    workload.communicators.push(Communicator { name: "world".to_owned(), ranks: members });
    for index in 0..ranks {
        workload.add_rank(0, &[Binding { communicator: 0, index }]);
    }
    Ok(workload)
}
