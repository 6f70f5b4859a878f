//! Longer or shorter computation, larger or smaller messages.

use windtunnel_kernel::{Bytes, Span};

use crate::{OpKind, Workload};

/// Factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    /// Of computations by label: a pattern with `*` for any text, and a factor; the first that fits counts.
    pub compute: Vec<(String, f64)>,
    /// Of all payloads.
    pub bytes: f64,
}

impl Scale {
    /// The rule for computations of this label.
    pub(super) fn rule_for(&self, label: &str) -> Option<usize> {
        self.compute.iter().position(|(pattern, _)| fits(pattern, label))
    }
}

/// Whether `text` fits `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or("")) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    // Without a star all must be used up; behind the last one anything may stand, but a part that ends the pattern ends the text.
    match last {
        None => rest.is_empty(),
        Some("") => true,
        Some(part) => text.ends_with(part),
    }
}

pub(super) fn times(value: u64, factor: f64) -> u64 {
    (value as f64 * factor).round() as u64
}

/// Applies `scale`; returns how many computations each rule has changed, over the distinct programs.
pub fn scale(workload: &mut Workload, scale: &Scale) -> Vec<u64> {
    let mut changed = vec![0; scale.compute.len()];
    for program in &mut workload.programs {
        let rule_of: Vec<Option<usize>> = program.labels.iter().map(|label| scale.rule_for(label)).collect();
        for op in &mut program.ops {
            match &mut op.kind {
                OpKind::Calc { duration, .. } => {
                    if let Some(rule) = rule_of[op.label as usize] {
                        *duration = Span::from_ps(times(duration.ps(), scale.compute[rule].1));
                        changed[rule] += 1;
                    }
                }
                OpKind::Send { bytes, .. } => *bytes = Bytes::new(times(bytes.get(), scale.bytes)),
                OpKind::Receive { .. } | OpKind::Collective { .. } => {}
            }
        }
        for spec in &mut program.specs {
            spec.bytes = Bytes::new(times(spec.bytes.get(), scale.bytes));
            if let Some(matrix) = &mut spec.matrix {
                *matrix = matrix.iter().map(|&bytes| times(bytes, scale.bytes)).collect();
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text) in
            [("*", ""), ("gemm*", "gemm_nt"), ("*gemm", "cutlass_gemm"), ("a*b*c", "a--b--c"), ("x", "x")]
        {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("gemm", "gemm_nt"), ("*gemm", "gemm_nt"), ("a*b*c", "a--c--b"), ("", "x")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
