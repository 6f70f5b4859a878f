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

/// The mean of the largest of `n` exponential variables of mean 1: the harmonic number 1 + 1/2 + … + 1/n, within 1e-9 (Euler and
/// Maclaurin's series beyond 16); 0 for none.
pub fn largest_of_exponentials(n: u64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if n <= 16 {
        return (1..=n).map(|k| 1.0 / k as f64).sum();
    }
    let n = n as f64;
    let square = 1.0 / (n * n);
    ln(n) + EULER + 0.5 / n - square / 12.0 + square * square / 120.0
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
    fn the_largest_of_exponentials_is_a_harmonic_number() {
        let mut sum = 0.0;
        for n in 1..5000u64 {
            sum += 1.0 / n as f64;
            assert!((largest_of_exponentials(n) - sum).abs() < 1e-9, "{n}: {}", largest_of_exponentials(n));
            assert!(largest_of_exponentials(n) > largest_of_exponentials(n - 1));
        }
        assert_eq!(largest_of_exponentials(0), 0.0);
    }
}
