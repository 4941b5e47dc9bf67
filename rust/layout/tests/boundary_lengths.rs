//! What exact resume needs at every boundary length (`reference/layouts.md`, section 4.1).

use kvstore_layout::Layout;
use kvstore_layout::account::{Basis, WindowRows};
use kvstore_layout::registry::Registry;

fn named(name: &str, form: Option<&str>) -> Layout {
    Registry::built_in().find(name).unwrap().layout(form, false).unwrap()
}

/// Items 3 to 6 of the section: 127 window rows, overlap tails, open groups.
fn state(layout: &Layout, n: u64) -> u64 {
    layout.window_bytes_at(n, Basis::Logical, WindowRows::Resume)
        + layout.state_bytes(n, Basis::Logical)
}

#[test]
fn entries_and_state_at_each_length() {
    #[rustfmt::skip]
    const ROWS: &[(u64, u64, u64, u64, u64, u64, u64)] = &[
        // N, V3.2, V4-Flash entries, its state, V4-Pro entries, its state, V4.1 entries
        (0, 0, 0, 0, 0, 0, 0),
        (1, 48_068, 0, 322_072, 0, 469_800, 356),
        (3, 144_204, 0, 966_216, 0, 1_409_400, 2_136),
        (4, 192_272, 13_692, 858_208, 19_560, 1_264_800, 3_560),
        (5, 240_340, 13_692, 1_180_280, 19_560, 1_734_600, 3_916),
        (127, 6_104_636, 424_452, 14_668_264, 606_360, 22_186_200, 112_496),
        (128, 6_152_704, 449_824, 3_619_304, 644_024, 5_138_648, 113_920),
        (129, 6_200_772, 449_824, 3_916_264, 644_024, 5_572_824, 114_276),
        (255, 12_257_340, 874_276, 14_668_264, 1_250_384, 22_186_200, 226_416),
        (256, 12_305_408, 899_648, 3_619_304, 1_288_048, 5_138_648, 227_840),
        (257, 12_353_476, 899_648, 3_916_264, 1_288_048, 5_572_824, 228_196),
        (1_000, 48_068_000, 3_504_760, 12_138_984, 5_016_728, 18_344_152, 890_000),
        (4_096, 196_886_528, 14_394_368, 3_619_304, 20_608_768, 5_138_648, 3_645_440),
        (32_768, 1_575_092_224, 115_154_944, 3_619_304, 164_870_144, 5_138_648, 29_163_520),
        (131_072, 6_300_368_896, 460_619_776, 3_619_304, 659_480_576, 5_138_648, 116_654_080),
        (1_048_576, 50_402_951_168, 3_684_958_208, 3_619_304, 5_275_844_608, 5_138_648, 933_232_640),
    ];
    let v32 = named("deepseek-v3.2", None);
    let flash = named("deepseek-v4-flash", None);
    let pro = named("deepseek-v4-pro", None);
    let v41 = named("deepseek-v4.1-flash", None);
    for &(n, v32_all, flash_entries, flash_state, pro_entries, pro_state, v41_entries) in ROWS {
        assert_eq!(v32.entry_bytes(n, Basis::Logical), v32_all, "V3.2 at {n}");
        assert_eq!(flash.entry_bytes(n, Basis::Logical), flash_entries, "V4-Flash at {n}");
        assert_eq!(state(&flash, n), flash_state, "V4-Flash state at {n}");
        assert_eq!(pro.entry_bytes(n, Basis::Logical), pro_entries, "V4-Pro at {n}");
        assert_eq!(state(&pro, n), pro_state, "V4-Pro state at {n}");
        assert_eq!(v41.entry_bytes(n, Basis::Logical), v41_entries, "V4.1 at {n}");
    }
}

#[test]
fn entry_counts() {
    let flash = named("deepseek-v4-flash", None);
    let group = |name: &str| &flash.groups()[flash.group_index(name).unwrap()];
    for (n, r4, r128) in
        [(3, 0, 0), (4, 1, 0), (127, 31, 0), (128, 32, 1), (257, 64, 2), (1_000, 250, 7)]
    {
        assert_eq!(group("csa").entries_in(n), r4);
        assert_eq!(group("hca").entries_in(n), r128);
    }
}

#[test]
fn window_and_tails() {
    let logical = Basis::Logical;
    for (name, window, overlap, open_hca, rings) in [
        ("deepseek-v4-flash", 3_214_336, 430_080, 10_403_840, 1_720_320 + 10_485_760),
        ("deepseek-v4-pro", 4_559_872, 614_400, 16_125_952, 2_457_600 + 16_252_928),
    ] {
        let layout = named(name, None);
        assert_eq!(layout.window_bytes_at(4096, logical, WindowRows::Held), window);
        assert_eq!(layout.state_bytes(4096, logical), overlap);
        assert_eq!(layout.checkpoint_bytes(), overlap);
        let hca = &layout.groups()[layout.group_index("hca-tail").unwrap()];
        assert_eq!(hca.bytes_at(4096 + 127, logical, WindowRows::Resume), open_hca);
        assert_eq!(layout.ring_bytes(), rings);
    }
}

#[test]
fn window_and_engine_tails_raw_and_in_vllm_pages() {
    for (name, raw, padded) in
        [("deepseek-v4-flash", 15_420_416, 15_467_904), ("deepseek-v4-pro", 23_270_400, 23_340_672)]
    {
        let layout = named(name, Some("vllm:fp8_ds_mla"));
        let both = |basis| {
            layout.window_bytes_at(4096, basis, WindowRows::Held) + layout.state_bytes(4096, basis)
        };
        assert_eq!(both(Basis::Logical), raw);
        assert_eq!(both(Basis::Padded), padded);
    }
}

#[test]
fn block_sizes() {
    for (name, bytes) in [
        ("deepseek-v4-pro", 644_024),
        ("deepseek-v4-flash", 449_824),
        ("deepseek-v4.1-flash", 113_920),
    ] {
        let layout = named(name, None);
        assert_eq!(layout.block_tokens(), 128);
        assert_eq!(layout.body_bytes(), bytes, "the body has no padding of its own");
    }
    assert_eq!(named("deepseek-v3.2", None).body_bytes() * 2, 6_152_704);
    let slot = named("deepseek-v4.1-flash", None).body_bytes().next_multiple_of(4096);
    assert_eq!(slot, 896 * 128);
}

#[test]
fn vllm_pages() {
    let v4 = named("deepseek-v4-flash", Some("vllm:fp8_ds_mla"));
    let page = |layout: &Layout, name: &str| {
        let group = &layout.groups()[layout.group_index(name).unwrap()];
        let entries = match group.page.page_entries {
            0 => group.entries_in(u64::from(layout.block_tokens())),
            n => u64::from(n),
        };
        (entries, entries * group.record_bytes(), group.page.page_bytes(entries))
    };
    assert_eq!(page(&v4, "csa"), (64, 37_376, 37_440));
    assert_eq!(page(&v4, "hca"), (2, 1_168, 1_728));
    assert_eq!(page(&v4, "csa-index"), (64, 4_352, 4_608));
    assert_eq!(page(&v4, "window"), (64, 37_376, 37_440));
    assert_eq!(page(&v4, "csa-tail"), (4, 32_768, 32_832));
    assert_eq!(page(&v4, "csa-index-tail"), (4, 8_192, 8_640));
    assert_eq!(page(&v4, "hca-tail"), (8, 32_768, 32_832));
    let fp8 = named("deepseek-v4-flash", Some("vllm:fp8_ds_mla+fp8-index"));
    assert_eq!(page(&fp8, "csa-index"), (64, 8_448, 8_640));
    let v41 = named("deepseek-v4.1-flash", Some("vllm:nvfp4"));
    assert_eq!(page(&v41, "r1"), (128, 36_864, 36_864));
    assert_eq!(page(&v41, "r1-index"), (128, 8_704, 8_704));
    assert_eq!(page(&v41, "r2"), (64, 18_432, 18_432));
    assert_eq!(page(&v41, "r2-index"), (64, 4_352, 4_608));
    assert_eq!(page(&v41, "window"), (32, 16_896, 16_896));
    assert_eq!(v41.body_bytes(), 114_688);
    let v32 = named("deepseek-v3.2", None);
    assert_eq!(v32.page(0, 0).unwrap().len, 41_984);
    assert_eq!(v32.page(1, 0).unwrap().len, 8_448);
}
