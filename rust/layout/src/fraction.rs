//! Exact non-negative fractions. Bytes per token are fractions (V4-Flash: 14057/4), and rounding
//! them is how sums go wrong.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul};

/// A reduced non-negative fraction.
///
/// Arithmetic panics when a result leaves 128 bits; with the limits that `Layout::new` sets on
/// sizes it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fraction {
    numerator: u128,
    denominator: u128,
}

impl Fraction {
    /// Zero.
    pub const ZERO: Self = Self { numerator: 0, denominator: 1 };

    /// `numerator / denominator`, or `None` when the denominator is 0.
    pub fn new(numerator: u128, denominator: u128) -> Option<Self> {
        if denominator == 0 {
            return None;
        }
        let divisor = gcd(numerator, denominator);
        Some(Self { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// A count over a non-zero number.
    pub(crate) fn per(numerator: u64, denominator: u32) -> Self {
        Self::new(u128::from(numerator), u128::from(denominator.max(1))).unwrap_or(Self::ZERO)
    }

    /// Numerator of the reduced fraction.
    pub fn numerator(self) -> u128 {
        self.numerator
    }

    /// Denominator of the reduced fraction, at least 1.
    pub fn denominator(self) -> u128 {
        self.denominator
    }

    /// The nearest float.
    pub fn to_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

impl From<u64> for Fraction {
    fn from(value: u64) -> Self {
        Self { numerator: u128::from(value), denominator: 1 }
    }
}

impl Add for Fraction {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let divisor = gcd(self.denominator, other.denominator);
        let denominator = self.denominator / divisor * other.denominator;
        let numerator = self.numerator * (other.denominator / divisor)
            + other.numerator * (self.denominator / divisor);
        Self::new(numerator, denominator).unwrap_or(Self::ZERO)
    }
}

impl Mul for Fraction {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let (a, b) =
            (gcd(self.numerator, other.denominator), gcd(other.numerator, self.denominator));
        let (a, b) = (a.max(1), b.max(1));
        Self {
            numerator: (self.numerator / a) * (other.numerator / b),
            denominator: (self.denominator / b) * (other.denominator / a),
        }
    }
}

impl Div for Fraction {
    type Output = Self;

    /// Panics on a division by zero, as integers do.
    fn div(self, other: Self) -> Self {
        assert!(other.numerator != 0, "division of {self} by zero");
        self * Self { numerator: other.denominator, denominator: other.numerator }
    }
}

impl Sum for Fraction {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::ZERO, Add::add)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.numerator * other.denominator).cmp(&(other.numerator * self.denominator))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(out, "{}", self.numerator)
        } else {
            write!(out, "{}/{}", self.numerator, self.denominator)
        }
    }
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
