//! NCCL's environment and libfabric's, as far as the model follows them.

use super::{Algorithm, Protocol, Version};

/// What `NCCL_…` variables change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    algorithms: [bool; 7],
    protocols: [bool; 3],
    /// `NCCL_VERSION`, which NVIDIA's containers set: the version whose tuner decides.
    pub version: Version,
    /// Whether `NCCL_PROTO` was given: LL128 is then allowed wherever it names it.
    pub protocols_given: bool,
    /// `NCCL_MIN_NCHANNELS`.
    pub channels_least: Option<u32>,
    /// `NCCL_MAX_NCHANNELS`.
    pub channels_most: Option<u32>,
    /// `NCCL_BUFFSIZE`, bytes.
    pub buffer: u64,
    /// `NCCL_NVLS_ENABLE`.
    pub nvls: bool,
    /// `NCCL_COLLNET_ENABLE`.
    pub collnet: bool,
    /// `NCCL_CROSS_NIC=1`: a ring may leave a host by another NIC than it came in by.
    pub cross_nic: bool,
    /// `FI_HMEM_CUDA_USE_GDRCOPY=0`: the driver copies between NICs' buffers and GPUs.
    pub driver_copies: bool,
    /// `FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD`: bytes up to which the processor copies without the driver.
    pub copied_safely: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            algorithms: [true; 7],
            protocols: [true; 3],
            version: Version::NEWEST,
            protocols_given: false,
            channels_least: None,
            channels_most: None,
            buffer: 4 << 20,
            nvls: true,
            collnet: false,
            cross_nic: false,
            driver_copies: false,
            copied_safely: None,
        }
    }
}

/// A variable that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}={value}`: expected {expected}")]
pub struct SettingsError {
    /// The variable.
    pub name: String,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub expected: &'static str,
}

impl Settings {
    /// Takes `name=value` into account; a variable the model does not follow is left alone and answered with `false`.
    ///
    /// # Errors
    /// [`SettingsError`] where the value is none of the variable's.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, SettingsError> {
        let wrong = |expected| SettingsError { name: name.to_owned(), value: value.to_owned(), expected };
        let whole = |expected| value.trim().parse::<u64>().map_err(|_| wrong(expected));
        match name {
            "NCCL_ALGO" => {
                let names = Algorithm::ALL.map(Algorithm::name);
                self.algorithms = listed(value, names).ok_or_else(|| wrong("names of algorithms"))?;
            }
            "NCCL_PROTO" => {
                let names = Protocol::ALL.map(Protocol::name);
                self.protocols = listed(value, names).ok_or_else(|| wrong("names of protocols"))?;
                self.protocols_given = true;
            }
            "NCCL_MIN_NCHANNELS" | "NCCL_MIN_CTAS" => {
                self.channels_least = Some(whole("a number of channels")?.clamp(1, 64) as u32);
            }
            "NCCL_MAX_NCHANNELS" | "NCCL_MAX_CTAS" => {
                self.channels_most = Some(whole("a number of channels")?.clamp(1, 64) as u32);
            }
            "NCCL_VERSION" => {
                self.version = Version::parse(value).ok_or_else(|| wrong("a version such as 2.18.5"))?;
            }
            "NCCL_BUFFSIZE" => self.buffer = whole("bytes")?.max(1 << 16),
            "NCCL_NVLS_ENABLE" => self.nvls = whole("0, 1 or 2")? != 0,
            "NCCL_COLLNET_ENABLE" => self.collnet = whole("0 or 1")? != 0,
            "NCCL_CROSS_NIC" => self.cross_nic = whole("0, 1 or 2")? == 1,
            "FI_HMEM_CUDA_USE_GDRCOPY" => self.driver_copies = whole("0 or 1")? == 0,
            "FI_CXI_SAFE_DEVMEM_COPY_THRESHOLD" => self.copied_safely = Some(whole("bytes")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether an algorithm is allowed.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        Algorithm::ALL.iter().zip(self.algorithms).any(|(&known, allowed)| known == algorithm && allowed)
    }

    /// Whether a protocol is allowed.
    pub fn allows_protocol(&self, protocol: Protocol) -> bool {
        self.protocols[protocol as usize]
    }
}

/// A list as NCCL reads it: names between commas, `^` in front for all but these.
fn listed<const N: usize>(text: &str, names: [&str; N]) -> Option<[bool; N]> {
    let (text, chosen) = text.trim().strip_prefix('^').map_or((text.trim(), true), |rest| (rest, false));
    let mut allowed = [!chosen; N];
    for name in text.split(',') {
        let at = names.iter().position(|known| known.eq_ignore_ascii_case(name.trim()))?;
        allowed[at] = chosen;
    }
    Some(allowed)
}
