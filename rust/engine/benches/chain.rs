//! Chain keys of 1,048,576 tokens on one core, as a ratio to a naive serial BLAKE3 chain.
//!
//! Naive: one keyed message per block, the parent's 32 bytes and then the tokens, so that each block of
//! 16 is two serial compressions and each of 64 five. It is run in two forms: `naive` feeds a `Hasher`
//! token by token (the bars are on this one), `tight` calls `keyed_hash` once over a buffer filled in
//! bulk, which is the least that this rule costs. Against `tight` about half is the end in blocks of
//! 16: one serial compression against two.
//!
//! Interleaved pairs of CPU time on one thread, with a null of naive against itself; the median and
//! quartiles of their ratios are printed, one JSON row and one line each.
//!
//! `cargo bench -p kvstore-engine --bench chain [-- PAIRS]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports by printing")]

use kvstore_engine::identity::{Extras, NamespaceDigest, Root, chain_keys, root};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

const TOKENS: usize = 1 << 20;
const PAIRS: usize = 41;

/// (block_tokens, most that the ratio to the naive chain may be)
const BARS: [(usize, f64); 2] = [(16, 0.45), (64, 0.30)];

fn main() {
    // cargo passes `--bench`; a number is the count of pairs.
    let pairs = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(PAIRS);
    let namespace = NamespaceDigest::from_bytes([7; 32]);
    let root = root(&namespace, 0, b"bench", 0);
    let tokens: Vec<u32> =
        (0..TOKENS as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 15).collect();
    for (block_tokens, bar) in BARS {
        let ours = || {
            chain_keys(&namespace, &root, &tokens, block_tokens, &Extras::none())
                .expect("whole blocks without extra keys")
                .len()
        };
        let naive = || naive(&namespace, &root, &tokens, block_tokens);
        let tight = || tight(&namespace, &root, &tokens, block_tokens);
        compare("null", block_tokens, pairs, None, naive, naive);
        compare("naive", block_tokens, pairs, Some(bar), ours, naive);
        compare("tight", block_tokens, pairs, None, ours, tight);
    }
}

fn naive(namespace: &NamespaceDigest, root: &Root, tokens: &[u32], block_tokens: usize) -> usize {
    let mut keys = Vec::with_capacity(tokens.len() / block_tokens);
    let mut last = *root.as_bytes();
    for block in tokens.chunks_exact(block_tokens) {
        let mut hasher = blake3::Hasher::new_keyed(namespace.as_bytes());
        hasher.update(&last);
        for token in block {
            hasher.update(&token.to_le_bytes());
        }
        last = *hasher.finalize().as_bytes();
        keys.push(last);
    }
    black_box(keys).len()
}

fn tight(namespace: &NamespaceDigest, root: &Root, tokens: &[u32], block_tokens: usize) -> usize {
    let mut keys = Vec::with_capacity(tokens.len() / block_tokens);
    let mut message = vec![0; 32 + 4 * block_tokens];
    let mut last = *root.as_bytes();
    for block in tokens.chunks_exact(block_tokens) {
        message[..32].copy_from_slice(&last);
        for (bytes, token) in message[32..].as_chunks_mut::<4>().0.iter_mut().zip(block) {
            *bytes = token.to_le_bytes();
        }
        last = *blake3::keyed_hash(namespace.as_bytes(), &message).as_bytes();
        keys.push(last);
    }
    black_box(keys).len()
}

/// Runs `ours` and `other` in turns, who goes first alternating, and prints their paired ratios.
fn compare(
    against: &str,
    block_tokens: usize,
    pairs: usize,
    bar: Option<f64>,
    ours: impl Fn() -> usize,
    other: impl Fn() -> usize,
) {
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        let (a, b) = if pair % 2 == 0 {
            let a = time(&ours);
            (a, time(&other))
        } else {
            let b = time(&other);
            (time(&ours), b)
        };
        ratios.push(a.as_secs_f64() / b.as_secs_f64());
        times.push(1e3 * a.as_secs_f64());
    }
    let [q1, ratio, q3] = quartiles(&mut ratios);
    let [_, milliseconds, _] = quartiles(&mut times);
    let met = bar.map(|bar| ratio <= bar);
    let row = serde_json::json!({
        "bench": "chain", "against": against, "block_tokens": block_tokens, "tokens": TOKENS,
        "ratio": ratio, "q1": q1, "q3": q3, "pairs": pairs, "cpu_ms": milliseconds,
        "bar": bar, "met": met,
    });
    println!("{row}");
    let bar = bar.map_or(String::new(), |bar| format!(", bar <= {bar:.2}"));
    eprintln!(
        "chain, blocks of {block_tokens:3}, against {against}: {ratio:.3} [{q1:.3}, {q3:.3}]{bar}, \
         {milliseconds:.2} ms of CPU"
    );
}

/// CPU time of this thread, since on a busy machine the clock counts other processes' slices.
fn time(run: &impl Fn() -> usize) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let start = now();
    black_box(run());
    now() - start
}

fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
