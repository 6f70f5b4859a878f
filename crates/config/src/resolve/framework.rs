//! What a training framework does where the scenario does not say: `data/frameworks/NAME.yaml`, or a file of the user's.
//!
//! A framework's sheet holds values for keys of `workload.training` and of `parallelism`, each with its evidence. A key that the
//! scenario gives goes before; what is taken from the sheet is named in the results' evidence. A sheet names no other sheet.

use serde::Deserialize;
use serde_json::{Map, Value};
use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;

use super::context::Context;
use super::told::{ordinary, says_nothing_of_software};
use crate::load::from_yaml;
use crate::schema::{ModelJob, Parallelism};
use crate::sheets;

/// A framework's habits.
pub(super) struct Framework {
    name: String,
    source: String,
    training: Habits<ModelJob>,
    parallelism: Habits<Parallelism>,
}

/// Settings of a section, and how each is known: (key, evidence, source) in the sheet's order.
struct Habits<T> {
    settings: T,
    known: Vec<(String, String, String)>,
}

/// A sheet as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sheet {
    name: String,
    title: String,
    #[serde(default)]
    training: Map<String, Value>,
    #[serde(default)]
    parallelism: Map<String, Value>,
}

/// A value and how it is known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Habit {
    value: Value,
    evidence: String,
    source: String,
}

/// Takes each named key of the sheet where the scenario leaves it out, and notes which were taken.
macro_rules! complete {
    ($given:expr, $sheet:expr, $taken:expr; $($key:ident),+) => {
        $(
            if $given.$key.is_none() && $sheet.settings.$key.is_some() {
                $given.$key = $sheet.settings.$key.clone();
                $taken(stringify!($key));
            }
        )+
    };
}

impl Framework {
    /// Name of the framework that a job trains with: the one that `training` names, or the one that is [ordinary] for its layout if
    /// `training` says nothing of its software; none where it says `none`, or what a framework does without naming one.
    pub(super) fn name_of<'a>(training: &'a ModelJob, parallelism: Option<&Parallelism>) -> Option<&'a str> {
        match training.framework.as_deref() {
            Some("none") => None,
            None => says_nothing_of_software(training).then(|| ordinary(parallelism)),
            named => named,
        }
    }

    /// The framework `name`.
    ///
    /// # Errors
    /// [`InputError`] for a name without a sheet, or a sheet that is wrong.
    pub(super) fn read(name: &str, context: &Context<'_>, place: &str) -> Result<Self, InputError> {
        let found = sheets::find("frameworks", name, context.base, &format!("{place}.training.framework"))?;
        Self::parse(&found.text, &found.source)
    }

    fn parse(text: &str, source: &str) -> Result<Self, InputError> {
        let sheet: Sheet = from_yaml(text, source)?;
        if sheet.title.trim().is_empty() {
            return Err(InputError::new(source, "`title` is empty, expected what the framework is"));
        }
        let parallelism: Habits<Parallelism> = Habits::read(sheet.parallelism, source, "parallelism")?;
        let training: Habits<ModelJob> = Habits::read(sheet.training, source, "training")?;
        if training.settings.framework.is_some() {
            return Err(InputError::new(
                format!("{source}: training.framework"),
                "a framework names no other",
            ));
        }
        Ok(Self { name: sheet.name, source: source.to_owned(), training, parallelism })
    }

    /// Fills what `training` and `parallelism` leave out, and says in `evidence` with what.
    pub(super) fn complete(
        &self,
        training: &mut ModelJob,
        mut parallelism: Parallelism,
        evidence: &mut EvidenceList,
    ) -> Parallelism {
        let mut taken = Vec::new();
        let mut note = |key: &'static str| taken.push(key);
        complete!(training, self.training, note;
            recompute, recompute_layers, lora_rank, regather, narrow_gathers, fused, fused_loss, reserved, sequence_parallel, precision,
            parameters, gradients, added_gradients, attention, causal, dropout, context_exchange, overlap_chunks, overlap_backward, dispatch, straggle,
            graphs, fused_experts, fused_expert_mlp, padded_experts, optimizer, split_overhead, hidden_exchange, permute_traffic, dispatcher, dispatcher_sms, routing_domains,
            overlap_shared, expert_imbalance, capacity_factor,
            expert_tp, compute_share, speed_spread);
        complete!(parallelism, self.parallelism, note; zero);
        if parallelism.zero != Some(3) {
            // Sharded parameters leave no choice: their gradients are reduced as they come.
            complete!(parallelism, self.parallelism, note; overlap_gradients);
        }
        complete!(parallelism, self.parallelism, note;
            bucket, whole_sums, blocking_exchange, prefetch, reduce, reshard, clip);
        evidence.add(&format!("framework {}", self.name), "data sheet", &self.source);
        for (key, kind, source) in self.training.known.iter().chain(&self.parallelism.known) {
            if taken.contains(&key.as_str()) {
                evidence.add(&format!("framework.{key}"), kind, source);
            }
        }
        parallelism
    }
}

impl<T: serde::de::DeserializeOwned> Habits<T> {
    fn read(section: Map<String, Value>, source: &str, name: &str) -> Result<Self, InputError> {
        let mut values = Map::new();
        let mut known = Vec::new();
        for (key, habit) in section {
            let place = format!("{source}: {name}.{key}");
            let habit: Habit = from_yaml(&habit.to_string(), &place)?;
            known.push((key.clone(), habit.evidence, habit.source));
            values.insert(key, habit.value);
        }
        let settings = from_yaml(&Value::Object(values).to_string(), &format!("{source}: {name}"))?;
        Ok(Self { settings, known })
    }
}
