//! The policies by the names of the command line.

use std::fmt;
use std::str::FromStr;

use kvstore_index::PolicyKind;

/// What decides who goes.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum Policy {
    /// One of the index's own.
    Index(PolicyKind),
    /// The exact bound: farthest next use, knowing the whole trace.
    Optimum,
}

/// A policy name that is not known.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("policy {name:?}: must be one of {}", Policy::ALL.map(|p| p.to_string()).join(", "))]
pub struct PolicyError {
    name: String,
}

impl Policy {
    /// All policies.
    pub const ALL: [Policy; 3] =
        [Policy::Index(PolicyKind::LeafLru), Policy::Index(PolicyKind::Lru), Policy::Optimum];
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Policy, PolicyError> {
        Policy::ALL
            .into_iter()
            .find(|policy| policy.to_string() == name)
            .ok_or_else(|| PolicyError { name: name.to_owned() })
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Index(PolicyKind::LeafLru) => "leaf-lru",
            Policy::Index(PolicyKind::Lru) => "lru",
            Policy::Optimum => "optimum",
        })
    }
}
