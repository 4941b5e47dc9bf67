//! The record formats of public engines, byte for byte.

use std::sync::LazyLock;

use super::{Coding, Format, Part, Place, ScaleOrder, unknown};
use crate::element::Element;
use crate::error::Error;
use crate::scheme::{Scheme, presets};
use Place::{Data, Tail};

/// One run of columns under construction.
struct Run {
    cols: usize,
    at: Place,
    coding: Coding,
}

fn coded(preset: &str, cols: usize, at: usize, scales: Place) -> Run {
    let order = ScaleOrder::Linear;
    Run { cols, at: Data(at), coding: Coding::Scheme { scheme: scheme(preset), scales, order } }
}

fn copy(cols: usize, at: usize) -> Run {
    Run { cols, at: Data(at), coding: Coding::Copy }
}

fn scheme(preset: &str) -> Scheme {
    presets::named(preset).expect("formats name presets of this crate").scheme
}

fn format(
    (name, engine, version, note): (&'static str, &'static str, &'static str, &'static str),
    (data_bytes, tail_bytes, page_multiple): (usize, usize, usize),
    runs: Vec<Run>,
) -> Format {
    let mut dim = 0;
    let mut parts = Vec::with_capacity(runs.len());
    for Run { cols, at, coding } in runs {
        parts.push(Part { col: dim, cols, at, coding });
        dim += cols;
    }
    Format { name, engine, version, note, dim, parts, data_bytes, tail_bytes, page_multiple }
}

const VLLM: &str = "2026 main";
const SGL: &str = "0.5.23";

fn mla() -> Vec<Format> {
    let rotary = Run { cols: 64, at: Data(256), coding: Coding::Cast(Element::E4M3Fn) };
    let strided = Run {
        cols: 512,
        at: Data(0),
        coding: Coding::Scheme {
            scheme: scheme("nvfp4.recip"),
            scales: Data(320),
            order: ScaleOrder::Strided4,
        },
    };
    let v32 = |preset| vec![coded(preset, 512, 0, Data(512)), copy(64, 528)];
    vec![
        format(
            ("mla_bf16", "all", "-", "512 latent and 64 rotary bf16"),
            (1152, 0, 1),
            vec![copy(576, 0)],
        ),
        format(
            (
                "fp8_ds_mla",
                "FlashMLA",
                "2026-04-29",
                "656 B; power-of-two fp32 scales: exact in every reader",
            ),
            (656, 0, 1),
            v32("fp8_e4m3.pow2_f32.128"),
        ),
        format(
            ("fp8_ds_mla.raw", "vLLM", VLLM, "656 B; raw fp32 scales: some readers truncate them"),
            (656, 0, 1),
            v32("fp8_e4m3.raw_f32.128"),
        ),
        format(
            ("fp8_ds_mla.sglang", "SGLang", SGL, "656 B; raw fp32 scales, x times 1/s"),
            (656, 0, 1),
            v32("fp8_e4m3.raw_f32.128.sglang"),
        ),
        format(
            (
                "nvfp4_ds_mla",
                "vLLM",
                VLLM,
                "352 B; rotary part e4m3 without a scale, scales strided by 4",
            ),
            (352, 0, 1),
            vec![strided, rotary],
        ),
        format(
            ("nvfp4_mla_416", "SGLang", "GLM-5.2 path, 2026", "416 B; rotary part bf16"),
            (416, 0, 1),
            vec![coded("nvfp4", 512, 0, Data(256)), copy(64, 288)],
        ),
    ]
}

fn v4() -> Vec<Format> {
    let main = |preset| vec![coded(preset, 448, 0, Tail(0)), copy(64, 448)];
    let fp8 = |scales| vec![coded("fp8_e4m3.ue8m0.32", 512, 0, scales)];
    let fp8_sglang = |scales| vec![coded("fp8_e4m3.ue8m0.32.scale_floor", 512, 0, scales)];
    let fp4 = |scales| vec![coded("nvfp4", 512, 0, scales)];
    vec![
        format(
            (
                "v4_main",
                "vLLM, SGLang",
                VLLM,
                "584 B = 576 + 8 split; amax >= 1e-4; page a multiple of 576",
            ),
            (576, 8, 576),
            main("fp8_e4m3.ue8m0.64"),
        ),
        format(
            (
                "v4_main.flashmla",
                "FlashMLA",
                "2026-04-29",
                "584 B with scale >= 1e-4, page not padded",
            ),
            (576, 8, 1),
            main("fp8_e4m3.ue8m0.64.scale_floor"),
        ),
        format(
            ("v41_window", "vLLM", VLLM, "528 B: 512 e4m3, then 16 UE8M0"),
            (528, 0, 1),
            fp8(Data(512)),
        ),
        format(
            (
                "v41_window.split",
                "vLLM",
                VLLM,
                "528 B split: values of the page, then scales; page a multiple of 512",
            ),
            (512, 16, 512),
            fp8(Tail(0)),
        ),
        format(
            ("v41_window.sglang", "SGLang", SGL, "528 B split, scale >= 1e-4"),
            (512, 16, 512),
            fp8_sglang(Tail(0)),
        ),
        format(
            ("v41_main", "vLLM, TensorRT-LLM", VLLM, "288 B: 512 e2m1, then 32 e4m3"),
            (288, 0, 1),
            fp4(Data(256)),
        ),
        format(
            ("v41_main.split", "SGLang", SGL, "288 B split; page a multiple of 256"),
            (256, 32, 256),
            fp4(Tail(0)),
        ),
    ]
}

fn indexer() -> Vec<Format> {
    let fp8 = || vec![coded("fp8_e4m3.pow2_f32.128.amax_floor", 128, 0, Tail(0))];
    let packed = || vec![coded("fp8_e4m3.ue8m0.32", 128, 0, Tail(0))];
    let fp4 = |preset| vec![coded(preset, 128, 0, Tail(0))];
    let main = "fp4.ue8m0.32";
    vec![
        format(
            ("index_fp8", "vLLM", VLLM, "132 B = 128 + 4 split, fp32 scales; V3.2"),
            (128, 4, 1),
            fp8(),
        ),
        format(
            ("index_fp8.v4", "vLLM", VLLM, "132 B split; page a multiple of 576"),
            (128, 4, 576),
            fp8(),
        ),
        format(
            (
                "index_fp8.ue8m0",
                "DeepGEMM",
                "2026-06-23",
                "132 B split; the 4 bytes are UE8M0, one per 32",
            ),
            (128, 4, 1),
            packed(),
        ),
        format(
            ("index_fp4", "vLLM", VLLM, "68 B = 64 + 4 split, UE8M0 per 32"),
            (64, 4, 1),
            fp4(main),
        ),
        format(
            ("index_fp4.v4", "vLLM", VLLM, "68 B split; page a multiple of 576"),
            (64, 4, 576),
            fp4(main),
        ),
        format(
            ("index_fp4.v41", "vLLM", VLLM, "68 B split; page a multiple of 512"),
            (64, 4, 512),
            fp4(main),
        ),
        format(
            (
                "index_fp4.deepgemm",
                "DeepGEMM",
                "2026-06-23",
                "68 B split; ties toward zero, -0 cleared, amax >= 1e-4",
            ),
            (64, 4, 1),
            fp4("fp4.ue8m0.32.deepgemm"),
        ),
    ]
}

static FORMATS: LazyLock<Vec<Format>> =
    LazyLock::new(|| [mla(), v4(), indexer()].into_iter().flatten().collect());

/// All record formats.
#[must_use]
pub fn all() -> &'static [Format] {
    &FORMATS
}

/// The format of a name.
///
/// # Errors
/// [`Error::Unknown`] with the names there are.
pub fn named(name: &str) -> Result<&'static Format, Error> {
    all().iter().find(|f| f.name == name).ok_or_else(|| unknown(name, all().iter().map(|f| f.name)))
}
