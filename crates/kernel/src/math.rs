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
}
