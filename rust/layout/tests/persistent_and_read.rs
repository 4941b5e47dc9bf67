//! Persistent bytes against the checkpoint interval, and bytes read per decode step
//! (`reference/layouts.md`, sections 4.2, 5.4, 6 and 7.2).

use kvstore_layout::account::{Basis, Tails, WindowRows};
use kvstore_layout::registry::Registry;
use kvstore_layout::{Fraction, Layout};

fn named(name: &str, form: &str) -> Layout {
    let form = if form.is_empty() { None } else { Some(form) };
    Registry::built_in().find(name).unwrap().layout(form, false).unwrap()
}

fn per_token(layout: &Layout, p: u32, tails: Tails) -> Fraction {
    layout.persistent_per_token(Some(p), true, tails, Basis::Logical)
}

/// One line of the table of 5.4.
type Interval = (u32, u64, u64, u64, u64, u64, f64, f64);

#[test]
fn by_interval() {
    #[rustfmt::skip]
    const ROWS: &[Interval] = &[
        // p, Flash window, + tail, engine-style, Pro window, engine-style, V4.1 + encoder window,
        // Flash window / 890
        (128, 28_626, 31_986, 123_986, 40_655, 186_831, 11_450.0, 32.2),
        (256, 16_070, 17_750, 63_750, 22_843, 95_931, 6_170.0, 18.1),
        (512, 9_792, 10_632, 33_632, 13_937, 50_481, 3_530.0, 11.0),
        (915, 7_027, 7_497, 20_367, 10_015, 30_464, 2_367.0, 7.9),
        (1_024, 6_653, 7_073, 18_573, 9_484, 27_756, 2_210.0, 7.5),
        (2_048, 5_084, 5_294, 11_044, 7_258, 16_394, 1_550.0, 5.7),
        (4_096, 4_299, 4_404, 7_279, 6_145, 10_713, 1_220.0, 4.8),
        (8_192, 3_907, 3_959, 5_397, 5_588, 7_872, 1_055.0, 4.4),
        (16_384, 3_710, 3_737, 4_455, 5_310, 6_452, 972.5, 4.2),
        (65_536, 3_563, 3_570, 3_750, 5_101, 5_387, 910.6, 4.0),
    ];
    let (flash, pro) = (named("deepseek-v4-flash", ""), named("deepseek-v4-pro", ""));
    for &(p, window, tail, engine, pro_window, pro_engine, encoder, against) in ROWS {
        // exact: the block's 449,824 B over 128 tokens, and what one resume point adds over p
        let exact = |entries: u64, point: u64| {
            let per = |bytes: u64, tokens: u64| Fraction::new(bytes.into(), tokens.into()).unwrap();
            per(entries, 128) + per(point, p.into())
        };
        assert_eq!(per_token(&flash, p, Tails::None), exact(449_824, 3_214_336));
        assert_eq!(per_token(&flash, p, Tails::Exact), exact(449_824, 3_214_336 + 430_080));
        assert_eq!(per_token(&flash, p, Tails::Engine), exact(449_824, 15_420_416));
        assert_eq!(per_token(&pro, p, Tails::None), exact(644_024, 4_559_872));
        assert_eq!(per_token(&pro, p, Tails::Engine), exact(644_024, 23_270_400));
        // and as the table prints it
        let printed = |value: Fraction, table: u64| {
            assert!((value.to_f64() - table as f64).abs() <= 0.5, "{value} at p = {p}: {table}");
        };
        printed(per_token(&flash, p, Tails::None), window);
        printed(per_token(&flash, p, Tails::Exact), tail);
        printed(per_token(&flash, p, Tails::Engine), engine);
        printed(per_token(&pro, p, Tails::None), pro_window);
        printed(per_token(&pro, p, Tails::Engine), pro_engine);
        let v41 = 890.0 + 1_351_680.0 / f64::from(p);
        assert!((v41 - encoder).abs() <= 0.5, "{v41} at p = {p}");
        let times = per_token(&flash, p, Tails::None).to_f64() / 890.0;
        assert!((times - against).abs() <= 0.05, "{times} at p = {p}");
    }
    assert_eq!(
        flash.persistent_per_token(None, true, Tails::Engine, Basis::Logical),
        flash.bytes_per_token(Basis::Logical)
    );
}

#[test]
fn window_equals_entries_at_915_tokens() {
    let flash = named("deepseek-v4-flash", "");
    let interval = Fraction::from(3_214_336) / flash.bytes_per_token(Basis::Logical);
    assert!((interval.to_f64() - 914.7).abs() < 0.05);
    let there = flash.bytes_per_token(Basis::Logical) * 2.into() / 890.into();
    assert!((there.to_f64() - 7.90).abs() < 0.005);
}

#[test]
fn lmcache_chunks_cost_more_than_v32() {
    let chunk = named("deepseek-v4-flash", "lmcache:fp8_ds_mla");
    let stored = per_token(&chunk, 256, Tails::Exact);
    assert!((stored.to_f64() - 63_750.0).abs() < 0.5);
    assert!(stored > named("deepseek-v3.2", "").bytes_per_token(Basis::Logical));
}

#[test]
fn everything_of_every_token() {
    for (name, bytes) in [("deepseek-v4-flash", 325_586), ("deepseek-v4-pro", 474_831)] {
        let layout = named(name, "");
        let rows = layout.groups().iter().map(|g| {
            let layers = g.layers.len() as u64;
            match g.name.as_str() {
                "window" => layers * g.record_bytes(),
                "csa-tail" => layers * 8_192,
                "csa-index-tail" => layers * 2_048,
                "hca-tail" => layers * 4_096,
                _ => 0,
            }
        });
        let all = layout.bytes_per_token(Basis::Logical) + rows.sum::<u64>().into();
        assert!((all.to_f64() - f64::from(bytes)).abs() <= 0.5, "{name}: {all}");
    }
}

#[test]
fn reads_by_context() {
    #[rustfmt::skip]
    const ROWS: &[(u64, f64, f64, f64, f64, f64, f64)] = &[
        // N; GB: V3 bf16, V3 656 dense, V3.2, V4-Pro, V4-Flash, V4.1
        (4_096, 0.2878, 0.1639, 0.1149, 0.0252, 0.0113, 0.0101),
        (32_768, 2.3027, 1.3112, 0.3458, 0.0438, 0.0242, 0.0183),
        (131_072, 9.2107, 5.2450, 1.1373, 0.1079, 0.0682, 0.0350),
        (1_048_576, 73.6855, 41.9598, 8.5251, 0.7056, 0.4795, 0.1910),
    ];
    let layouts = [
        named("deepseek-v3", "transformers"),
        named("deepseek-v3", "vllm:fp8_ds_mla"),
        named("deepseek-v3.2", ""),
        named("deepseek-v4-pro", ""),
        named("deepseek-v4-flash", ""),
        named("deepseek-v4.1-flash", ""),
    ];
    for &(n, a, b, c, d, e, f) in ROWS {
        for (layout, gb) in layouts.iter().zip([a, b, c, d, e, f]) {
            let read = layout.read_bytes(n) as f64 / 1e9;
            assert!((read - gb).abs() <= 0.000_051, "{} at {n}: {read}", layout.name());
        }
    }
}

#[test]
fn reads_exactly() {
    let n = 131_072;
    let v32 = named("deepseek-v3.2", "");
    let group = |layout: &Layout, name: &str, n: u64| {
        layout.groups()[layout.group_index(name).unwrap()].read_bytes(n)
    };
    assert_eq!(group(&v32, "index", n), 1_055_391_744);
    assert_eq!(group(&v32, "mla", n), 81_952_768);
    assert_eq!(v32.read_bytes(n), 1_137_344_512);
    let dense = named("deepseek-v3", "vllm:fp8_ds_mla").read_bytes(n);
    assert_eq!(dense, 5_244_977_152);
    assert!((dense as f64 / v32.read_bytes(n) as f64 - 4.61).abs() < 0.005);
    let v41 = named("deepseek-v4.1-flash", "");
    for n in [4_096, 32_768, 131_072, 1_048_576] {
        let index = (3 * n / 2 + n) * 68 + 4 * n.min(16_384) * 68;
        assert_eq!(v41.read_bytes(n), index + 38 * 512 * 288 + 40 * 128 * 528);
    }
    let m = 1 << 20;
    let scans = group(&v41, "r1-index", m) + group(&v41, "r2-index", m);
    assert_eq!(scans, 178_257_920 + 4 * 16_384 * 68);
    assert_eq!(group(&v41, "r1", m) + group(&v41, "r2", m), 38 * 512 * 288);
    assert_eq!(group(&v41, "window", m), 2_703_360);
}

#[test]
fn reads_of_counterfactuals() {
    let n = 131_072;
    assert_eq!(named("v3-as-mha", "").read_bytes(n), 3_997_696 * n);
    assert_eq!(named("v3-as-gqa-16", "").read_bytes(n), 499_712 * n);
    assert_eq!(named("deepseek-v3", "").read_bytes(n), 70_272 * n);
}

#[test]
fn sums_at_one_million_tokens() {
    let gb = |name: &str| named(name, "").entry_bytes(1 << 20, Basis::Logical) as f64 / 1e9;
    for (name, value) in [
        ("deepseek-v4-flash", 3.69),
        ("deepseek-v4-pro", 5.28),
        ("deepseek-v3.2", 50.40),
        ("deepseek-v4.1-flash", 0.93),
    ] {
        assert!((gb(name) - value).abs() < 0.0051, "{name}: {}", gb(name));
    }
}

#[test]
fn windows_of_every_token_tile() {
    for (name, whole) in [("deepseek-v4-flash", 28_626), ("deepseek-v4-pro", 40_655)] {
        let layout = named(name, "");
        let window = layout.window_bytes_at(128, Basis::Logical, WindowRows::Held);
        assert_eq!(window, layout.window_bytes(), "one window object a block");
        let stored = per_token(&layout, 128, Tails::None).to_f64();
        assert!((stored - f64::from(whole)).abs() <= 0.5);
    }
}
