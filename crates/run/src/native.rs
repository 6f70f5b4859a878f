//! Consent to native code: a library that a scenario names runs in this process with all the rights of its user, and a
//! scenario may come from anybody. It is loaded only if the caller allows it, or knows the file by its SHA-256.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use windtunnel_backend::Library;
use windtunnel_plan::error::InputError;
use windtunnel_plan::inputs::hex;
use windtunnel_plan::network_plan::BackendPlan;

/// Is told a line.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// What native code a caller lets run, and how it is told of what runs.
#[derive(Clone, Default)]
pub struct Native {
    /// Any that the scenario names.
    pub allowed: bool,
    /// That of these SHA-256, in hexadecimal digits.
    pub trusted: Vec<String>,
    /// Told in a line what is about to be loaded.
    pub notice: Option<Notice>,
}

impl fmt::Debug for Native {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Native")
            .field("allowed", &self.allowed)
            .field("trusted", &self.trusted)
            .finish_non_exhaustive()
    }
}

impl Native {
    /// Loads the library of `network.backend`, with consent and a line that says so.
    ///
    /// # Errors
    /// [`InputError`] for one that is not allowed, before any of its code has run, or that cannot be used.
    pub fn load(&self, backend: &BackendPlan, source: &str) -> Result<Library, InputError> {
        let place = || format!("{source}: network.backend.library");
        let unread = |error: std::io::Error| InputError::new(place(), error.to_string());
        let digest = hex(Sha256::digest(std::fs::read(&backend.library).map_err(unread)?));
        if !self.allowed && !self.trusted.iter().any(|trusted| trusted.eq_ignore_ascii_case(&digest)) {
            let message = format!(
                "`{}` is native code, which would run in this process with all your rights; its sha256 is {digest}",
                backend.written
            );
            return Err(InputError::new(place(), message).hint(
                "`--allow-native`, in Python `allow_native=True`, lets it run this time; a line with its sha256 in \
                 `~/.config/windtunnel/trusted-native` lets it run always",
            ));
        }
        if let Some(notice) = &self.notice {
            notice(&format!("loads native code: `{}`, sha256 {digest}", backend.library.display()));
        }
        Library::load(&backend.library).map_err(|error| InputError::new(place(), error.to_string()))
    }
}
