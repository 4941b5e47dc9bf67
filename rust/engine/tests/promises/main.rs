//! What a store promises, seen from its callers: one file per theme, tests named after the promise.
//! Where a public bug report asked for a test, its number (B1-01 to B4-12) is in the comment.

#![allow(clippy::print_stdout, reason = "roles speak to their test by it, and a skip says why")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../support/mod.rs"]
mod support;

mod mounts;
mod tools;

mod age_and_clear;
mod capacity;
mod file_systems;
mod identity;
mod leases;
mod mirror;
mod opening;
mod parts;
mod restart;
mod resume;
mod statuses;

/// What a process of its own does for a test that needs one.
#[test]
fn in_a_role() {
    if let Some(role) = common::role() {
        tools::play(&role);
    }
}
