//! Number formats of kernels.

use serde::Deserialize;

/// Number format of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floats.
    Fp32,
    /// 32-bit floats multiplied with 10-bit mantissas.
    Tf32,
    /// 16-bit floats.
    Fp16,
    /// 16-bit brain floats.
    Bf16,
    /// 8-bit floats.
    Fp8,
    /// 4-bit floats.
    Fp4,
}

impl Dtype {
    /// All.
    pub const ALL: [Self; 6] = [Self::Fp32, Self::Tf32, Self::Fp16, Self::Bf16, Self::Fp8, Self::Fp4];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Bits of one number.
    pub const fn bits(self) -> u64 {
        match self {
            Self::Fp32 | Self::Tf32 => 32,
            Self::Fp16 | Self::Bf16 => 16,
            Self::Fp8 => 8,
            Self::Fp4 => 4,
        }
    }

    /// Bytes of `count` numbers, rounded up, with the scales of their blocks: 16 numbers of 4 bits share one of 8 (NVFP4), 32 of
    /// 8 bits one of 8 (the OCP Microscaling formats v1.0, §5.2).
    pub const fn scaled_bytes(self, count: u64) -> u64 {
        let scales = match self {
            Self::Fp4 => count.div_ceil(16),
            Self::Fp8 => count.div_ceil(32),
            Self::Fp32 | Self::Tf32 | Self::Fp16 | Self::Bf16 => 0,
        };
        self.bytes(count) + scales
    }

    /// Bytes of `count` numbers, rounded up.
    pub const fn bytes(self, count: u64) -> u64 {
        (count * self.bits()).div_ceil(8)
    }
}
