//! Elementary functions from one pinned pure-Rust library, so that a result does not depend on the platform's libm.

/// Greatest common divisor (Euclid); of 0 and a number, that number.
pub const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// e^x.
pub fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// Natural logarithm of `x`.
pub fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// Base-2 logarithm of `x`.
pub fn log2(x: f64) -> f64 {
    libm::log2(x)
}

/// x^y.
pub fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// Square root (IEEE-exact, the same everywhere).
pub fn sqrt(x: f64) -> f64 {
    x.sqrt()
}

/// Cosine of `x` radians.
pub fn cos(x: f64) -> f64 {
    libm::cos(x)
}

/// Sine of `x` radians.
pub fn sin(x: f64) -> f64 {
    libm::sin(x)
}

/// The number below which a standard normal variable lies with probability `p`, to a relative 1.2e-9 (Acklam 2003, rational
/// approximations in three regions); infinite at 0 and 1.
pub fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let horner = |of: &[f64], x: f64| of.iter().fold(0.0, |sum, factor| sum * x + factor);
    const LOW: f64 = 0.024_25;
    if p <= 0.0 {
        f64::NEG_INFINITY
    } else if p >= 1.0 {
        f64::INFINITY
    } else if p < LOW {
        let q = sqrt(-2.0 * ln(p));
        horner(&C, q) / horner(&D, q)
    } else if p > 1.0 - LOW {
        -normal_quantile(1.0 - p)
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / horner(&B, r)
    }
}

/// The mean of the largest of `n` standard normal variables, within 0.03 (Blom 1958: the quantile at (n − 3/8)/(n + 1/4)); 0 for
/// one.
pub fn largest_of_normals(n: u64) -> f64 {
    if n <= 1 { 0.0 } else { normal_quantile((n as f64 - 0.375) / (n as f64 + 0.25)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_common_divisor_divides_both_and_no_greater_does() {
        for a in 0..40u64 {
            for b in 0..40u64 {
                let divides = |d: &u64| a.is_multiple_of(*d) && b.is_multiple_of(*d);
                let greatest = (1..=40).filter(divides).max().unwrap_or(0);
                // Everything divides 0 and 0.
                assert_eq!(gcd(a, b), if (a, b) == (0, 0) { 0 } else { greatest }, "{a} {b}");
            }
        }
        assert_eq!(gcd(u64::MAX, u64::MAX - 1), 1);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, due) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.841_344_746, 1.0), (0.001, -3.090_232_306)] {
            assert!((normal_quantile(p) - due).abs() < 1e-7, "{p}: {}", normal_quantile(p));
            assert!((normal_quantile(1.0 - p) + due).abs() < 1e-7, "{p} from the other side");
        }
        assert_eq!((normal_quantile(0.0), normal_quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }

    #[test]
    fn the_largest_of_normals_is_that_of_order_statistics() {
        // Harter 1961, table 1; of two it is 1/sqrt(pi).
        for (n, due) in [(1, 0.0), (2, 0.564_19), (10, 1.538_75), (100, 2.507_59), (400, 2.968_18)] {
            assert!((largest_of_normals(n) - due).abs() < 0.03, "{n}: {}", largest_of_normals(n));
        }
        assert!((1..5000).all(|n| largest_of_normals(n) < largest_of_normals(n + 1)));
    }
}
