//! The built-in entries read, and mistakes in a user's file get their line and mend.

use super::*;

#[test]
fn built_in_reads() {
    assert!(Registry::built_in().architectures().len() > 40);
}
