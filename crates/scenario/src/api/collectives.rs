//! Times of single collectives from closed forms, many at once: what `windtunnel calibrate` fits and `windtunnel validate`
//! compares.

use serde::Deserialize;
use serde_json::json;
use windtunnel_plan::error::InputError;
use windtunnel_workload::collectives::dispatcher::Routing;
use windtunnel_workload::collectives::mpi;
use windtunnel_workload::collectives::nccl::{Communicator, Constants, Function, Hardware, Layout, Settings};

use super::Failure;

/// Questions to the model of NCCL.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    hardware: Vec<Hardware>,
    settings: Vec<Vec<(String, String)>>,
    constants: Vec<Constants>,
    questions: Vec<Question>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    hardware: usize,
    settings: usize,
    layout: Layout,
    operation: Function,
    bytes: u64,
    /// Tokens to experts by a dispatcher, in place of NCCL's all-to-all.
    #[serde(default)]
    routing: Option<Routing>,
}

fn wrong(error: impl ToString) -> Failure {
    Failure::Input(InputError::new("collectives", error.to_string()))
}

/// Answers `text`, JSON with lists `hardware`, `settings` (pairs of name and value), `constants` and `questions`
/// (`hardware`, `settings`: indices; `layout`, `operation`, `bytes`, perhaps `routing`): `times`, seconds of every question under each of the
/// constants, and `choices`, the algorithm, protocol and channels that NCCL takes.
///
/// # Errors
/// [`Failure::Input`] where the text is not that, an index is beyond its list, or nothing is left to choose from.
pub fn collective_times(text: &str) -> Result<String, Failure> {
    let asked: Asked = serde_json::from_str(text).map_err(wrong)?;
    let mut settings = Vec::with_capacity(asked.settings.len());
    for pairs in &asked.settings {
        let mut set = Settings::default();
        for (name, value) in pairs {
            set.set(name, value).map_err(wrong)?;
        }
        settings.push(set);
    }
    let mut times = vec![Vec::with_capacity(asked.questions.len()); asked.constants.len()];
    let mut choices = Vec::with_capacity(asked.questions.len());
    for (i, question) in asked.questions.iter().enumerate() {
        let missing = |what: &str, at: usize| wrong(format!("questions[{i}].{what}: no entry {at}"));
        let Layout { domains, ranks, .. } = question.layout;
        if domains == 0 || ranks == 0 {
            return Err(wrong(format!("questions[{i}].layout: expected at least one rank")));
        }
        let communicator = Communicator {
            hardware: asked
                .hardware
                .get(question.hardware)
                .ok_or_else(|| missing("hardware", question.hardware))?,
            layout: question.layout,
            settings: settings
                .get(question.settings)
                .ok_or_else(|| missing("settings", question.settings))?,
        };
        if let Some(routing) = question.routing {
            for (constants, times) in asked.constants.iter().zip(&mut times) {
                let found = communicator.dispatched(routing, question.bytes, constants);
                times.push(found.before + found.moving);
            }
            choices.push("dispatcher".to_owned());
            continue;
        }
        let mut choice = communicator.choose(question.operation, question.bytes).map_err(wrong)?;
        for (i, (constants, times)) in asked.constants.iter().zip(&mut times).enumerate() {
            if !constants.even {
                times.push(communicator.time_of(question.operation, choice, question.bytes, constants));
                continue;
            }
            let (taken, time) =
                communicator.time(question.operation, question.bytes, constants).map_err(wrong)?;
            times.push(time);
            // One choice is told for a question, that of the first constants.
            if i == 0 && asked.constants.len() == 1 {
                choice = taken;
            }
        }
        choices.push(format!("{}/{}/{}", choice.algorithm.name(), choice.protocol.name(), choice.channels));
    }
    Ok(json!({ "times": times, "choices": choices }).to_string())
}

/// Questions to the model of MPI's algorithms.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MpiQuestions {
    fabrics: Vec<mpi::Fabric>,
    constants: Vec<mpi::Constants>,
    questions: Vec<MpiQuestion>,
}

#[derive(Deserialize)]
struct MpiQuestion {
    fabric: usize,
    #[serde(flatten)]
    asked: mpi::Question,
}

/// Answers `text`, JSON with lists `fabrics`, `constants` and `questions` (`fabric`: index; `collective`, `algorithm`,
/// `bytes`, `segment`, `ports`, `permute`, `announced`): `times`, seconds of every question under each of the constants.
///
/// # Errors
/// [`Failure::Input`] where the text is not that, an index is beyond its list, or an algorithm does not compute its
/// collective.
pub fn mpi_times(text: &str) -> Result<String, Failure> {
    let asked: MpiQuestions = serde_json::from_str(text).map_err(wrong)?;
    let mut times = vec![Vec::with_capacity(asked.questions.len()); asked.constants.len()];
    for (i, question) in asked.questions.iter().enumerate() {
        let fabric = asked
            .fabrics
            .get(question.fabric)
            .ok_or_else(|| wrong(format!("questions[{i}].fabric: no entry {}", question.fabric)))?;
        for (found, times) in
            question.asked.times(fabric, &asked.constants).map_err(wrong)?.into_iter().zip(&mut times)
        {
            times.push(found);
        }
    }
    Ok(json!({ "times": times }).to_string())
}
