//! What takes tokens to experts, from a job's settings.

use windtunnel_plan::error::InputError;
use windtunnel_plan::evidence::EvidenceList;
use windtunnel_workload::model::Dispatcher;

use super::names::choice;
use crate::schema::ModelJob;

/// SMs of DeepEP where nobody says.
const SMS: u32 = 20;

/// The dispatcher of a job; none where tokens go by all-to-all.
///
/// # Errors
/// [`InputError`] for an unknown name, a zero, or a setting of a dispatcher that is not there.
pub(super) fn dispatcher(
    settings: &ModelJob,
    place: &str,
    evidence: &mut EvidenceList,
) -> Result<Option<Dispatcher>, InputError> {
    let at = |key: &str| format!("{place}.training.{key}");
    let names = [("all_to_all", false), ("deepep", true)];
    let own = choice(settings.dispatcher.as_deref(), &at("dispatcher"), &names, false)?;
    let given = [("dispatcher_sms", settings.dispatcher_sms), ("routing_domains", settings.routing_domains)];
    for (key, value) in given {
        match value {
            Some(0) => return Err(InputError::new(at(key), "expected at least 1, found 0")),
            Some(_) if !own => {
                let error = InputError::new(at(key), "an all-to-all has no such setting");
                return Err(error.hint("set `dispatcher: deepep` beside it"));
            }
            _ => {}
        }
    }
    if !own {
        return Ok(None);
    }
    evidence.add(
        "dispatcher",
        "calibrated",
        "windtunnel calibrate dispatchers on aic_deepep.csv.gz (github.com/ai-dynamo/aiconfigurator@095f58a)",
    );
    Ok(Some(Dispatcher {
        sms: settings.dispatcher_sms.unwrap_or(SMS),
        domains: settings.routing_domains.unwrap_or(0),
    }))
}
