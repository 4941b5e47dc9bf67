//! Traces for the tests.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use kvstore_sim::{Capacity, Loaded, Outcome, Policy, Trace};

/// Chat sessions that share heads, go on, pause and branch: 400 requests in all, the same in each
/// run (a linear congruential generator, seed 1).
pub(crate) fn synthetic() -> Vec<Vec<u64>> {
    let mut state = 1u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut fresh = 10_000;
    let mut sessions: Vec<Vec<u64>> = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..400 {
        let mut chain: Vec<u64> = match random(10) {
            // A new session under one of four heads, or under none.
            0..3 => {
                let head = random(5) as u64;
                (0..head * 3).map(|n| head * 100 + n).collect()
            }
            // Another answer to an earlier turn.
            3 if !sessions.is_empty() => {
                let session = &sessions[random(sessions.len())];
                session[..random(session.len() + 1)].to_vec()
            }
            // The next turn of one of the last sessions, sometimes of any.
            n if !sessions.is_empty() => {
                let recent = if n == 4 { sessions.len() } else { sessions.len().min(8) };
                sessions[sessions.len() - 1 - random(recent)].clone()
            }
            _ => Vec::new(),
        };
        for _ in 0..random(12) + 1 {
            chain.push(fresh);
            fresh += 1;
        }
        sessions.push(chain.clone());
        requests.push(chain);
    }
    requests
}

/// Requests as JSON Lines in the published form.
pub(crate) fn json_lines(requests: &[Vec<u64>]) -> String {
    let mut text = String::new();
    for (n, ids) in requests.iter().enumerate() {
        writeln!(
            text,
            r#"{{"timestamp": {}, "input_length": {}, "output_length": 7, "hash_ids": {ids:?}}}"#,
            n * 250,
            ids.len() * 64
        )
        .unwrap();
    }
    text
}

pub(crate) fn write(dir: &Path, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, contents).unwrap();
    path
}

pub(crate) fn load(requests: &[Vec<u64>]) -> Loaded {
    let dir = tempfile::tempdir().unwrap();
    Loaded::read(write(dir.path(), "trace.jsonl", json_lines(requests)), None).unwrap()
}

pub(crate) fn replay(trace: &Loaded, policy: &str, capacity: &str) -> Outcome {
    trace.replay(policy.parse::<Policy>().unwrap(), capacity.parse::<Capacity>().unwrap())
}

/// A published trace beside the repository, or `None` with a message where there are none.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces")).join(name);
    if !path.exists() {
        eprintln!("skipped: no published trace at {}", path.display());
        return None;
    }
    Some(path)
}

pub(crate) fn chains(path: &Path, head: Option<u64>) -> Vec<Vec<u64>> {
    Trace::open(path, head).unwrap().map(|request| request.unwrap().blocks).collect()
}
