//! Every SIMD level gives the bytes of the scalar specification: encoded, decoded, packed and split.

use kvstore_codec::record::{self, pack, unpack};
use kvstore_codec::scheme::presets::{self, Preset};
use kvstore_codec::scheme::{Given, Global, Scale};
use kvstore_codec::{
    Coded, Encoded, Level, Options, Source, Stores, Target, decode, encode, planes,
};
use proptest::prelude::*;

/// A row's numbers: ordinary ones, ties of every format, and what has no ordinary scale.
fn words(len: usize) -> impl Strategy<Value = Vec<u16>> {
    let near = (-24i32..12, any::<u16>()).prop_map(|(octave, bits)| {
        // A random sign and mantissa within a few octaves of 2^octave.
        let exponent = (127 + octave + i32::from(bits >> 8 & 7)) as u16;
        (bits & 0x807F) | (exponent << 7)
    });
    let tie = (0u16..64, -16i32..16, any::<bool>()).prop_map(|(code, octave, sign)| {
        let value = f32::from(code) * 0.125 * 2f32.powi(octave);
        kvstore_codec::f32_to_bf16(if sign { -value } else { value })
    });
    let special = prop::sample::select(vec![
        0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFF81, 0x7FFF,
    ]);
    let ordinary = prop_oneof![8 => near, 3 => tie];
    let any_word = prop_oneof![200 => ordinary, 1 => special, 1 => any::<u16>()];
    // Whole rows of one octave, so that scales differ from row to row.
    (prop::collection::vec(any_word, len), any::<bool>(), 1u16..=254).prop_map(
        |(mut words, narrow, exponent)| {
            if narrow {
                words.iter_mut().for_each(|w| *w = (*w & 0x807F) | (exponent << 7));
            }
            words
        },
    )
}

struct Case {
    preset: &'static Preset,
    cols: usize,
    rows: usize,
}

impl Case {
    fn given(&self) -> Given<'static> {
        let global = match self.preset.scheme.scale {
            Scale::Nv(nv) if nv.global != Global::None => Some(0.0123),
            _ => None,
        };
        let scale: &[f32] = if self.preset.scheme.scale == Scale::Given { &[0.037] } else { &[] };
        Given { scale, global }
    }

    fn encode(&self, words: &[u16], shift: usize, options: &Options) -> [Vec<u8>; 3] {
        let sizes = self.preset.scheme.sizes(self.rows, self.cols).unwrap();
        let mut buffers = [sizes.codes, sizes.scales, sizes.mins].map(|n| vec![0xEE; n + shift]);
        let [codes, scales, mins] = &mut buffers;
        let [codes, scales, mins] = [codes, scales, mins].map(|b| &mut b[shift..]);
        let source = Source::Bf16(words);
        let out = Encoded { codes, scales, mins };
        encode(&self.preset.scheme, source, self.cols, self.given(), out, options).unwrap();
        buffers
    }

    fn decode(&self, bytes: &[Vec<u8>; 3], shift: usize, options: &Options) -> Vec<u16> {
        let [codes, scales, mins] = [0, 1, 2].map(|i| &bytes[i][shift..]);
        let mut words = vec![0xEEEE; self.rows * self.cols];
        let coded = Coded { codes, scales, mins };
        let target = Target::Bf16(&mut words);
        decode(&self.preset.scheme, coded, self.cols, self.given(), target, options).unwrap();
        words
    }
}

fn simd_levels() -> Vec<Options> {
    let levels = Level::available().into_iter().filter(|level| *level != Level::Scalar);
    levels.map(|level| Options { level: Some(level), threads: 1, stores: Stores::Cached }).collect()
}

const SCALAR: Options = Options { level: Some(Level::Scalar), threads: 1, stores: Stores::Cached };

fn check(case: &Case, words: &[u16], noise: &[u8], shift: usize) -> Result<(), TestCaseError> {
    let name = &case.preset.name;
    let wanted = case.encode(words, shift, &SCALAR);
    // Random bytes too: a decoder takes what it finds.
    let fill =
        |b: &Vec<u8>| b.iter().zip(noise.iter().cycle()).map(|(_, n)| *n).collect::<Vec<u8>>();
    let random = [fill(&wanted[0]), fill(&wanted[1]), fill(&wanted[2])];
    let decoded = [&wanted, &random].map(|bytes| case.decode(bytes, shift, &SCALAR));
    for options in simd_levels() {
        let bytes = case.encode(words, shift, &options);
        prop_assert!(bytes == wanted, "{name} {options:?}: encoded {words:04x?}");
        for (bytes, decoded) in [&wanted, &random].into_iter().zip(&decoded) {
            let words = case.decode(bytes, shift, &options);
            prop_assert_eq!(&words, decoded, "{} {:?}: decoded {:02x?}", name, options, bytes);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn levels_agree_on_every_preset(
        rows in 1usize..4,
        units in 1usize..6,
        words in words(3 * 5 * 128),
        noise in prop::collection::vec(any::<u8>(), 61),
        shift in 0usize..4,
    ) {
        for preset in presets::all() {
            // Some multiple of 128 or of 16, as the block allows; 32 rows where blocks run down.
            let block = preset.scheme.block;
            let unit = if block.cols == 0 { 16 } else { block.cols };
            let mut cols = units * unit;
            let mut rows = rows;
            if block.rows > 1 || preset.scheme.rows_per_word() > 1 {
                rows = block.rows.max(32);
                cols = block.cols.max(1);
            }
            let case = Case { preset, cols, rows };
            let len = rows * cols;
            let words: Vec<u16> = words.iter().copied().cycle().skip(shift).take(len).collect();
            check(&case, &words, &noise, shift)?;
        }
    }

    #[test]
    fn levels_agree_on_pages(count in 1usize..7, entries in 1usize..4, words in words(7 * 576)) {
        for format in record::all() {
            let rows = &words[..count * format.dim];
            let mut wanted = vec![0; count.div_ceil(entries) * format.page_bytes(entries)];
            pack(format, rows, entries, &mut wanted, &SCALAR).unwrap();
            let mut back = vec![0; rows.len()];
            unpack(format, &wanted, entries, &mut back, &SCALAR).unwrap();
            for options in simd_levels() {
                let mut pages = vec![0xEE; wanted.len()];
                pack(format, rows, entries, &mut pages, &options).unwrap();
                prop_assert!(pages == wanted, "{} {options:?}", format.name);
                let mut words = vec![0xEEEE; rows.len()];
                unpack(format, &pages, entries, &mut words, &options).unwrap();
                prop_assert_eq!(&words, &back, "{} {:?}", format.name, options);
            }
        }
    }

    #[test]
    fn planes_join_to_what_was_split(words in prop::collection::vec(any::<u16>(), 0..300)) {
        let mut wanted = vec![0; 2 * words.len()];
        for (i, word) in words.iter().enumerate() {
            [wanted[i], wanted[words.len() + i]] = word.to_le_bytes();
        }
        for level in Level::available() {
            let options = Options { level: Some(level), ..SCALAR };
            let mut bytes = vec![0; 2 * words.len()];
            planes::split(&words, &mut bytes, &options).unwrap();
            prop_assert_eq!(&bytes, &wanted, "{:?}", level);
            let mut back = vec![0; words.len()];
            planes::join(&bytes, &mut back, &options).unwrap();
            prop_assert_eq!(&back, &words, "{:?}", level);
        }
    }
}

/// All 65,536 bf16 patterns as elements of ordinary blocks: one row per pattern's octave.
#[test]
fn levels_agree_on_every_bf16_pattern() {
    let names = [
        "fp8_e4m3.ue8m0.32",
        "mxfp8_e5m2.floor",
        "mxfp4.even",
        "fp4.ue8m0.32.deepgemm",
        "nvfp4",
        "nvfp4.mlx",
        "fp8_e4m3.raw_f32.128",
        "fp8_e4m3.static",
        "fp8_e5m2.static",
        "int8.per_token_head",
        "int8.per_token_head.vllm",
    ];
    // Ascending magnitudes with both signs: neighbours share a block, so scales suit them.
    let words: Vec<u16> = (0..0x8000u16).flat_map(|m| [m, m | 0x8000]).collect();
    for name in names {
        let preset = presets::named(name).unwrap();
        let case = Case { preset, cols: 128, rows: words.len() / 128 };
        check(&case, &words, &[0], 0).unwrap();
    }
    // And every code with every scale code, decoded.
    for name in ["mxfp8_e4m3.rceil", "mxfp8_e5m2.rceil", "mxfp4.rceil", "nvfp4"] {
        let preset = presets::named(name).unwrap();
        let per_scale = preset.scheme.block.cols;
        let code_bytes = per_scale * preset.scheme.element.bits() as usize / 8;
        let blocks = 256 * 256 / code_bytes;
        let codes: Vec<u8> = (0..blocks * code_bytes).map(|i| (i % 256) as u8).collect();
        let scales: Vec<u8> = (0..blocks).map(|b| (b / (256 / code_bytes)) as u8).collect();
        let case = Case { preset, cols: per_scale, rows: blocks };
        let bytes = [codes, scales, Vec::new()];
        let wanted = case.decode(&bytes, 0, &SCALAR);
        for options in simd_levels() {
            assert!(case.decode(&bytes, 0, &options) == wanted, "{name} {options:?}");
        }
    }
}

#[test]
fn threads_and_streamed_stores_change_no_byte() {
    let (rows, cols) = (16_411, 512);
    let words: Vec<u16> =
        (0..rows * cols).map(|i| (i as u32).wrapping_mul(0x9E37_79B1) as u16).collect();
    // 64-byte aligned destinations inside larger buffers.
    let aligned = |bytes: &[u8]| bytes.as_ptr().align_offset(64);
    let names = [
        "fp8_e4m3.ue8m0.64",
        "fp8_e4m3.raw_f32.128",
        "fp8_e4m3.static",
        "mxfp4.floor",
        "nvfp4",
        "nvfp4.global",
        "kivi_v.int4",
        "int8.per_token_head",
    ];
    for name in names {
        let preset = presets::named(name).unwrap();
        let case = Case { preset, cols, rows };
        let sizes = preset.scheme.sizes(rows, cols).unwrap();
        let wanted = case.encode(&words, 0, &Options { level: None, ..SCALAR });
        let back = case.decode(&wanted, 0, &Options { level: None, ..SCALAR });
        for threads in [1, 3] {
            let options = Options { level: None, threads, stores: Stores::Stream };
            let mut codes = vec![0; sizes.codes + 64];
            let at = aligned(&codes);
            let (mut scales, mut mins) = (vec![0; sizes.scales], vec![0; sizes.mins]);
            let out = Encoded {
                codes: &mut codes[at..at + sizes.codes],
                scales: &mut scales,
                mins: &mut mins,
            };
            encode(&preset.scheme, Source::Bf16(&words), cols, case.given(), out, &options)
                .unwrap();
            assert!(codes[at..at + sizes.codes] == wanted[0], "{name}");
            assert!(scales == wanted[1] && mins == wanted[2], "{name}");
            let mut target = vec![0u16; rows * cols + 32];
            let at = target.as_ptr().align_offset(64);
            let coded = Coded { codes: &wanted[0], scales: &wanted[1], mins: &wanted[2] };
            let out = Target::Bf16(&mut target[at..at + rows * cols]);
            decode(&preset.scheme, coded, cols, case.given(), out, &options).unwrap();
            assert!(target[at..at + rows * cols] == back, "{name}");
        }
    }
}

#[test]
fn streamed_rows_of_any_length_are_the_specification_s() {
    let shapes = [
        ("nvfp4", 16),
        ("nvfp4", 48),
        ("nvfp4.global", 48),
        ("mxfp4.floor", 96),
        ("fp4.ue8m0.128.deepgemm", 384),
        ("fp8_e4m3.ue8m0.32", 32),
        ("fp8_e4m3.ue8m0.32", 96),
        ("fp8_e4m3.static", 160),
        ("fp8_e5m2.static", 1056),
        ("int8.per_token_head", 160),
    ];
    for (name, cols) in shapes {
        let case = Case { preset: presets::named(name).unwrap(), cols, rows: 501 };
        let len = case.rows * cols;
        let words: Vec<u16> =
            (0..len).map(|i| (i as u32).wrapping_mul(0x9E37_79B1) as u16).collect();
        let bytes = case.encode(&words, 0, &SCALAR);
        let wanted = case.decode(&bytes, 0, &SCALAR);
        let [codes, scales, mins] = &bytes;
        for options in simd_levels() {
            let options = Options { stores: Stores::Stream, ..options };
            let mut target = vec![0u16; len + 32];
            let at = target.as_ptr().align_offset(64);
            let out = Target::Bf16(&mut target[at..at + len]);
            let coded = Coded { codes, scales, mins };
            decode(&case.preset.scheme, coded, cols, case.given(), out, &options).unwrap();
            assert!(target[at..at + len] == wanted, "{name} {cols} {options:?}");
        }
    }
}

#[test]
fn a_misaligned_stream_is_refused() {
    let preset = presets::named("mxfp4.floor").unwrap();
    let options = Options { stores: Stores::Stream, ..Options::default() };
    let mut codes = [0; 16 + 64];
    let at = codes.as_ptr().align_offset(64) + 1;
    let out = Encoded { codes: &mut codes[at..at + 16], scales: &mut [0], mins: &mut [] };
    let source = Source::Bf16(&[0; 32]);
    let error = encode(&preset.scheme, source, 32, Given::default(), out, &options).unwrap_err();
    assert!(error.to_string().contains("codes: address ends 1 bytes past a multiple of 64"));
}
