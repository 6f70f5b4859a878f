//! Versions of NCCL, whose tuner changed from one to the next.

/// A version of NCCL: what `ncclGetVersion` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// The newest of which the constants are known.
    pub const NEWEST: Self = Self(2, 30, 7);

    /// Reads `2.18.5`, `2.18.5-1`, `2.26.2+cuda12.8`, `2_18`, or NCCL's number of it (`21805`). Of a series without a third
    /// number the last one is meant.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
        let mut parts = text[..end].split(['.', '_']).filter(|part| !part.is_empty());
        let first: u32 = parts.next()?.parse().ok()?;
        match parts.next() {
            Some(minor) => {
                let last = parts.next().map_or(Some(u32::MAX), |patch| patch.parse().ok())?;
                Some(Self(first, minor.parse().ok()?, last))
            }
            // NCCL_VERSION_CODE: 10000 · major + 100 · minor + patch from 2.9 on, 1000 · major before.
            None if first >= 10_000 => Some(Self(first / 10_000, first / 100 % 100, first % 100)),
            None if first >= 1_000 => Some(Self(first / 1_000, first / 100 % 10, first % 100)),
            None => None,
        }
    }

    /// Whether it is `2.minor.patch` or newer.
    pub const fn since(self, minor: u32, patch: u32) -> bool {
        self.0 > 2 || self.0 == 2 && (self.1 > minor || self.1 == minor && self.2 >= patch)
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::NEWEST
    }
}
