//! Bytes per token of every architecture and form (`reference/layouts.md`, sections 2.3, 5.1 to 5.3).

use kvstore_layout::account::{Basis, WindowRows};
use kvstore_layout::registry::Registry;
use kvstore_layout::{Fraction, Layout};

fn named(name: &str, form: &str) -> Layout {
    let form = if form.is_empty() { None } else { Some(form) };
    Registry::built_in().find(name).unwrap().layout(form, false).unwrap()
}

fn logical(name: &str, form: &str) -> Fraction {
    named(name, form).bytes_per_token(Basis::Logical)
}

fn ratio(numerator: u128, denominator: u128) -> Fraction {
    Fraction::new(numerator, denominator).unwrap()
}

#[test]
fn whole_numbers() {
    #[rustfmt::skip]
    const ROWS: &[(&str, &str, u64)] = &[
        ("deepseek-llm-7b", "transformers", 491_520), ("deepseek-llm-7b", "vllm:fp8", 245_760),
        ("deepseek-llm-67b", "transformers", 389_120), ("deepseek-llm-67b", "vllm:fp8", 194_560),
        ("deepseek-v2", "transformers", 69_120), ("deepseek-v2.5", "vllm:fp8", 34_560),
        ("deepseek-v2", "vllm:fp8_ds_mla", 39_360), ("deepseek-v2", "vllm:nvfp4_ds_mla", 21_120),
        ("deepseek-v2", "deployed:6bit", 25_920), ("deepseek-v2-lite", "transformers", 27 * 1_152),
        ("deepseek-v3", "transformers", 70_272), ("deepseek-r1", "vllm:fp8", 35_136),
        ("deepseek-v3.1", "vllm:fp8_ds_mla", 40_016), ("kimi-k2", "vllm:nvfp4_ds_mla", 21_472),
        ("kimi-k2.5", "transformers", 70_272),
        ("deepseek-v3.2", "transformers", 85_888), ("deepseek-v3.2", "vllm:fp8_ds_mla", 48_068),
        ("deepseek-v3.2-speciale", "flashmla:fp8_ds_mla", 48_068),
        ("deepseek-v3.2-exp", "vllm:nvfp4_ds_mla", 29_524),
        ("deepseek-v3.2", "vllm:nvfp4_ds_mla+mxfp4-index", 25_620),
        ("glm-5", "transformers", 109_824), ("glm-5.1", "vllm:fp8_ds_mla", 61_464),
        ("glm-5", "sglang:nvfp4", 42_744), ("glm-5.2", "transformers", 95_232),
        ("glm-5.2", "vllm:fp8_ds_mla", 53_940), ("glm-5.2", "sglang:nvfp4", 35_220),
        ("deepseek-v4-pro", "transformers", 9_848), ("deepseek-v4-flash", "transformers", 6_880),
        ("deepseek-v4-pro", "sglang:nvfp4", 3_483), ("deepseek-v4-flash", "sglang:nvfp4", 2_433),
        ("deepseek-v4.1-flash", "bf16", 3_200), ("deepseek-v4.1-flash", "vllm:hopper", 1_790),
        ("deepseek-v4.1-flash", "vllm:mxfp8+fp8-index", 1_650),
        ("deepseek-v4.1-flash", "vllm:mxfp8", 1_490),
        ("deepseek-v4.1-flash", "sglang:nvfp4-384", 1_130), ("deepseek-v4.1-flash", "native", 890),
        ("llama-3.1-8b", "", 131_072), ("llama-3.3-70b", "", 327_680), ("llama-3.1-405b", "", 516_096),
        ("qwen3-0.6b", "", 114_688), ("qwen3-8b", "", 147_456), ("qwen3-32b", "", 262_144),
        ("qwen3-30b-a3b", "", 98_304), ("qwen3-235b-a22b", "", 192_512),
        ("qwen3-coder-480b-a35b", "", 253_952),
        ("mistral-7b", "", 131_072), ("mistral-nemo", "", 163_840), ("mistral-small-24b", "", 163_840),
        ("mistral-large-2", "", 360_448), ("mixtral-8x7b", "", 131_072), ("mixtral-8x22b", "", 229_376),
        ("minimax-m2", "", 253_952), ("qwen3-next-80b", "", 24_576), ("qwen3.5-397b", "", 30_720),
        ("kimi-k3", "", 27_648), ("kimi-k3", "vllm:fp8", 13_824), ("kimi-k3", "vllm:fp8_ds_mla", 15_744),
        ("gpt-oss-20b", "", 24_576), ("gpt-oss-120b", "", 36_864),
        ("gemma-3-27b", "", 81_920), ("gemma-3-12b", "", 65_536), ("gemma-3-4b", "", 20_480),
        ("gemma-3-1b", "", 4_096), ("minimax-text-01", "", 40_960), ("minimax-m1", "vllm:fp8", 20_480),
        ("minimax-m3", "", 137_472), ("minimax-m3", "vllm:fp8", 68_736),
        ("qwen3-next-80b", "vllm:fp8", 12_288), ("qwen3.5-397b", "vllm:fp8", 15_360),
        ("v2-as-mha", "", 3_932_160), ("v2-as-gqa-8", "", 245_760), ("v3-as-mha", "", 3_997_696),
        ("v3-as-gqa-16", "", 499_712), ("v3-as-gqa-8", "", 249_856), ("v3-as-mqa", "", 31_232),
        ("67b-as-gqa-int8", "", 194_560),
    ];
    for &(name, form, bytes) in ROWS {
        assert_eq!(logical(name, form), bytes.into(), "{name} {form}");
    }
}

#[test]
fn fractions() {
    assert_eq!(logical("deepseek-v4-flash", ""), ratio(351_425, 100));
    assert_eq!(logical("deepseek-v4-pro", ""), ratio(50_314_375, 10_000));
    assert_eq!(logical("deepseek-v4-flash", "native:fp8-index"), ratio(385_025, 100));
    assert_eq!(logical("deepseek-v4-pro", "native:fp8-index"), ratio(55_114_375, 10_000));
    let padded = |name, form| named(name, form).bytes_per_token(Basis::Padded);
    assert_eq!(padded("deepseek-v4-flash", "vllm:fp8_ds_mla"), ratio(358_425, 100));
    assert_eq!(padded("deepseek-v4-flash", "vllm:fp8_ds_mla+fp8-index"), 3_915.into());
    assert_eq!(padded("deepseek-v4-pro", "vllm:fp8_ds_mla"), ratio(513_675, 100));
    assert_eq!(padded("deepseek-v4-pro", "vllm:fp8_ds_mla+fp8-index"), ratio(560_925, 100));
    assert_eq!(padded("deepseek-v4.1-flash", "vllm:nvfp4"), 896.into());
}

#[test]
fn fixed_state() {
    let registry = Registry::built_in();
    for (name, form, bytes) in [
        ("qwen3-next-80b", "vllm:bf16", 77_266_944),
        ("qwen3.5-397b", "vllm:bf16", 192_061_440),
        ("kimi-k3", "vllm:bf16", 449_372_160),
        ("minimax-text-01", "vllm:bf16", 293_601_280),
    ] {
        let layout = named(name, form);
        assert_eq!(layout.checkpoint_bytes(), bytes, "{name}");
        assert_eq!(layout.ring_bytes(), bytes, "{name}");
    }
    for (name, bytes) in [
        ("gpt-oss-20b", 3_145_728),
        ("gpt-oss-120b", 4_718_592),
        ("gemma-3-27b", 436_207_616),
        ("gemma-3-12b", 335_544_320),
        ("gemma-3-4b", 121_634_816),
        ("gemma-3-1b", 11_534_336),
        ("deepseek-v4.1-flash", 2_703_360),
    ] {
        let window = named(name, "").window_bytes_at(1 << 20, Basis::Logical, WindowRows::Held);
        assert_eq!(window, bytes, "{name}");
    }
    assert_eq!(named("deepseek-v4.1-flash", "").ring_bytes(), 98_304);
    let v32 = registry.find("deepseek-v3.2").unwrap();
    let per_token = |draft| v32.layout(None, draft).unwrap().bytes_per_token(Basis::Logical);
    assert_eq!(per_token(true), per_token(false) + 788.into(), "the MTP layer");
    let v41 = registry.find("deepseek-v4.1-flash").unwrap();
    let window = |draft| {
        v41.layout(None, draft).unwrap().window_bytes_at(4096, Basis::Logical, WindowRows::Held)
    };
    assert_eq!(window(true) - window(false), 202_752, "three draft layers");
}

#[test]
fn v41_window_by_layers() {
    let v41 = named("deepseek-v4.1-flash", "");
    let window = &v41.groups()[v41.group_index("window").unwrap()];
    let layer = window.layer_bytes(4096, Basis::Logical, WindowRows::Held);
    assert_eq!((20 * layer, 21 * layer), (1_351_680, 1_419_264));
}

/// Per mille of V3.2, in units of a thousandth.
fn of_v32(name: &str, form: &str) -> f64 {
    (logical(name, form) / logical("deepseek-v3.2", "")).to_f64() * 100.0
}

#[test]
fn v4_against_v32() {
    assert_eq!(logical("deepseek-v4-pro", "") / 48_068.into(), ratio(80_503, 769_088));
    assert_eq!(logical("deepseek-v4-flash", "") / 48_068.into(), ratio(14_057, 192_272));
    let close = |x: f64, y: f64, digits: i32| (x - y).abs() <= 0.5 * 10f64.powi(-digits);
    assert!(close(of_v32("deepseek-v4-pro", ""), 10.467, 3));
    assert!(close(of_v32("deepseek-v4-flash", ""), 7.311, 3));
    assert!(close(of_v32("deepseek-v4-pro", "native:fp8-index"), 11.5, 1));
    assert!(close(of_v32("deepseek-v4-flash", "native:fp8-index"), 8.0, 1));
    let against = |name: &str, bytes: u64| (logical(name, "") / bytes.into()).to_f64() * 100.0;
    assert!(close(against("deepseek-v4-pro", 85_888), 5.9, 1));
    assert!(close(against("deepseek-v4-flash", 85_888), 4.1, 1));
    assert!(close(against("deepseek-v4-pro", 40_016), 12.6, 1));
    assert!(close(against("deepseek-v4-flash", 40_016), 8.8, 1));
    assert!(close(against("deepseek-v4-pro", 61 * 4_096), 2.01, 2));
    assert!(close(against("deepseek-v4-flash", 43 * 4_096), 2.00, 2));
    for (name, percent) in [("deepseek-v4-pro", 10.476), ("deepseek-v4-flash", 7.317)] {
        let (layout, n) = (named(name, ""), 1u64 << 20);
        let bytes = layout.entry_bytes(n, Basis::Logical)
            + layout.window_bytes_at(n, Basis::Logical, WindowRows::Held);
        let v32 = named("deepseek-v3.2", "").entry_bytes(n, Basis::Logical);
        assert!(close(bytes as f64 / v32 as f64 * 100.0, percent, 3), "{name} at 1M");
    }
}

#[test]
fn window_volume_against_main_entries() {
    for (name, times) in [("deepseek-v4-pro", 7.88), ("deepseek-v4-flash", 7.95)] {
        let layout = named(name, "");
        let main = layout.groups().iter().filter(|g| ["csa", "hca"].contains(&g.name.as_str()));
        let entries: u64 = main.map(|g| g.bytes_at(128, Basis::Logical, WindowRows::Held)).sum();
        let window = layout.window_bytes_at(128, Basis::Logical, WindowRows::Held);
        assert!((window as f64 / entries as f64 - times).abs() < 0.005, "{name}");
    }
}

#[test]
fn the_890_bytes() {
    let v41 = named("deepseek-v4.1-flash", "");
    let bytes = |name: &str| {
        let group = &v41.groups()[v41.group_index(name).unwrap()];
        Fraction::new(u128::from(group.bytes_at(128, Basis::Logical, WindowRows::Held)), 128)
            .unwrap()
    };
    assert_eq!(bytes("r1") + bytes("r2"), 720.into());
    assert_eq!(bytes("r1-index") + bytes("r2-index"), 170.into());
    assert_eq!(ratio(5, 2) * 340.into(), 850.into(), "MXFP4 at one scale per 32 would be this");
    let flash = logical("deepseek-v4-flash", "");
    for (bytes, times) in [
        (3_200, 1.10),
        (1_790, 1.96),
        (1_650, 2.13),
        (1_490, 2.36),
        (1_130, 3.11),
        (890, 3.949),
        (850, 4.13),
    ] {
        assert!(((flash / bytes.into()).to_f64() - times).abs() < 0.0051, "{bytes}");
    }
    assert!(((Fraction::from(389_120) / 890.into()).to_f64() - 437.2).abs() < 0.05);
}

/// The search of section 5.3: which record formats and source counts give 890.
#[test]
fn formats_that_give_890() {
    let mains = [1024u64, 584, 528, 272, 288, 366, 368, 380, 384, 304, 316, 256];
    let indexes = [0u64, 64, 68, 72, 132];
    let (mut within, mut exact, mut no_r128) = (0, 0, Vec::new());
    for main in mains {
        for index in indexes {
            for r1 in 0..=5u64 {
                for r2 in 0..=20u64 {
                    for r4 in 0..=20u64 {
                        for r128 in 0..=20u64 {
                            if r1 + r2 + r4 + r128 > 40 {
                                continue;
                            }
                            let pooled = 128 * r1 + 64 * r2 + 32 * r4;
                            let block = pooled * (main + index) + r128 * main;
                            within += u32::from(block.abs_diff(890 * 128) <= 64);
                            if block == 890 * 128 {
                                exact += 1;
                                if r128 == 0 {
                                    no_r128.push((main, index, r1, r2, r4));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert_eq!((within, exact, no_r128.len()), (106, 24, 12));
    assert!(no_r128.iter().all(|&(main, index, ..)| (main, index) == (288, 68)));
    assert!(no_r128.contains(&(288, 68, 1, 3, 0)), "the released topology");
}

#[test]
fn elements() {
    let per_layer = |name: &str| {
        let architecture = Registry::built_in().find(name).unwrap();
        named(name, "").elements_per_token() / u64::from(architecture.layers).into()
    };
    assert_eq!(per_layer("deepseek-llm-7b"), 8_192.into());
    assert_eq!(per_layer("deepseek-llm-67b"), 2_048.into());
    assert_eq!(per_layer("deepseek-v2"), 576.into());
    assert_eq!(per_layer("deepseek-v3"), 576.into());
    assert_eq!(per_layer("deepseek-v3.2"), (576 + 128).into());
    let v4 = |csa: u64, hca: u64| Fraction::from(csa) * 160.into() + Fraction::from(hca) * 4.into();
    assert_eq!(named("deepseek-v4-pro", "").elements_per_token(), v4(30, 31));
    assert_eq!(named("deepseek-v4-flash", "").elements_per_token(), v4(21, 20));
    assert_eq!(named("deepseek-v4.1-flash", "").elements_per_token(), ratio(640 * 5, 2));
}

/// Record bytes x entries per token and owner x owning layers, for the chain of DeepSeek's models.
#[test]
fn axes() {
    for (name, owners, entries) in [
        ("deepseek-llm-67b", 95, Fraction::from(95)),
        ("deepseek-v3.2", 61, 61.into()),
        ("deepseek-v4-flash", 41, ratio(21, 4) + ratio(20, 128)),
        ("deepseek-v4-pro", 61, ratio(30, 4) + ratio(31, 128)),
        ("deepseek-v4.1-flash", 4, ratio(5, 2)),
    ] {
        let layout = named(name, "");
        assert_eq!(
            (layout.owner_layers(), layout.entries_per_token()),
            (owners, entries),
            "{name}"
        );
    }
    let v41 = named("deepseek-v4.1-flash", "");
    assert_eq!(v41.bytes_per_token(Basis::Logical) / v41.entries_per_token(), 356.into());
}

/// The 8-bit column of 5.1 where it says "half": one byte an element, whatever the family.
#[test]
fn eight_bits_are_half() {
    let mut checked = 0;
    for architecture in Registry::built_in().architectures() {
        let forms: Vec<_> = architecture.forms().map(|(name, _)| name).collect();
        if forms.contains(&"vllm:bf16") && forms.contains(&"vllm:fp8") {
            let [bf16, fp8] =
                ["vllm:bf16", "vllm:fp8"].map(|form| logical(&architecture.name, form));
            assert_eq!(fp8 + fp8, bf16, "{}", architecture.name);
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}
