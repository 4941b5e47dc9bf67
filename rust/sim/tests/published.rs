//! Hit ratios on the published traces against the counts beside them.

mod common;

use std::fs;

use common::{replay, shared};
use kvstore_sim::Loaded;
use serde_json::Value;

fn stats(trace: &str) -> Option<Value> {
    let text = fs::read_to_string(shared("stats.json")?).unwrap();
    Some(serde_json::from_str::<Value>(&text).unwrap()[trace].clone())
}

fn check(name: &str, fractions: &[&str]) {
    let (Some(path), Some(stats)) = (shared(&format!("{name}.jsonl.gz")), stats(name)) else {
        return;
    };
    let trace = Loaded::read(path, None).unwrap();
    let info = trace.info();
    assert_eq!(info.requests, stats["requests"].as_u64().unwrap());
    assert_eq!(info.blocks_requested, stats["block_lookups"].as_u64().unwrap());
    assert_eq!(u64::from(info.unique_blocks), stats["unique_blocks"].as_u64().unwrap());

    for &fraction in fractions {
        let percent = format!("{}%", fraction.parse::<f64>().unwrap() * 100.0);
        let ratio = replay(&trace, "leaf-lru", &percent).hit_ratio();
        let expected = stats["lru_prefix_hit_by_fraction_of_unique"][fraction].as_f64().unwrap();
        assert!((ratio - expected).abs() <= 0.001, "{percent}: {ratio:.4}, published {expected}");
        assert!(replay(&trace, "lru", &percent).hit_ratio() <= ratio, "{percent}");
    }
    let infinite = stats["infinite_prefix_hit"].as_f64().unwrap();
    let rounded = |ratio: f64| (ratio * 1e4).round() / 1e4;
    assert_eq!(rounded(replay(&trace, "leaf-lru", "100%").hit_ratio()), infinite);
    for (blocks, expected) in stats["belady_prefix_hit_by_blocks"].as_object().unwrap() {
        let ratio = replay(&trace, "optimum", blocks).hit_ratio();
        assert_eq!(rounded(ratio), expected.as_f64().unwrap(), "at {blocks} blocks");
    }
}

#[test]
fn mooncake() {
    check("mooncake_conversation", &["0.01", "0.02", "0.05", "0.1", "0.2"]);
}

/// Holes and all: the figures of the eviction study, whose simulator shares no code with this one.
#[test]
fn plain_lru_on_mooncake() {
    let Some(path) = shared("mooncake_conversation.jsonl.gz") else { return };
    let trace = Loaded::read(path, None).unwrap();
    for (capacity, expected) in [("0.5%", 0.0435), ("2%", 0.0787), ("10%", 0.2784)] {
        let ratio = replay(&trace, "lru", capacity).hit_ratio();
        assert!((ratio - expected).abs() <= 0.000_05, "{capacity}: {ratio:.5}, not {expected}");
    }
}

#[test]
fn synthetic_agents() {
    check("agentic_synth_shared_prefix", &["0.01", "0.05", "0.2"]);
}

/// Component ids become chain ids; the counts are those of the eviction study, which re-keys alike.
#[test]
fn ragpulse() {
    let Some(path) = shared("ragpulse_days1-5.jsonl.gz") else { return };
    let trace = Loaded::read(path, None).unwrap();
    assert_eq!(trace.info().unique_blocks, 42_594);
    assert_eq!(trace.info().blocks_requested, 51_937);
    for (capacity, expected) in [("0.5%", 0.1769), ("2%", 0.1795), ("100%", 0.1799)] {
        let ratio = replay(&trace, "leaf-lru", capacity).hit_ratio();
        assert!((ratio - expected).abs() < 0.0001, "{capacity}: {ratio:.4}, not {expected}");
    }
}

#[test]
fn the_head_of_the_coding_agents() {
    let Some(path) = shared("agentic_cc_gap15.jsonl.gz") else { return };
    let trace = Loaded::read(path, Some(2000)).unwrap();
    let info = trace.info();
    assert_eq!(info.requests, 2000);
    let seen_before = info.blocks_requested - u64::from(info.unique_blocks);
    assert_eq!(replay(&trace, "leaf-lru", "100%").blocks_hit, seen_before);
    assert_eq!(replay(&trace, "optimum", "100%").blocks_hit, seen_before);
}
