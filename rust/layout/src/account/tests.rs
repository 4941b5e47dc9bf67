//! Accounting: additive over tokens and groups.
