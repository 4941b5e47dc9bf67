//! Named schemes, each with the engine and version whose bytes it writes.
//!
//! Rules and sources: the writers' public code as of the dates in `version`. A preset is a fact
//! about that version; a new rule gets a new name and an old name never changes its bytes.

use std::sync::LazyLock;

use super::{
    Block, Floor, Global, LinearScale, NvScale, Pack, PowerRule, PowerScale, PowerStore, Quotient,
    Scale, ScaleArith, Scheme,
};
use crate::element::{Cast, Element, ZeroSign};
use crate::error::Error;
use crate::float::Rounding;

/// A named scheme.
#[derive(Debug, Clone, PartialEq)]
pub struct Preset {
    /// The name, unique.
    pub name: String,
    /// Who writes these bytes.
    pub engine: &'static str,
    /// The release or the date of the public snapshot.
    pub version: &'static str,
    /// What sets it apart.
    pub note: &'static str,
    /// The rule.
    pub scheme: Scheme,
}

const ROW_128: Block = Block { rows: 1, cols: 128 };
const WHOLE_ROW: Block = Block { rows: 1, cols: 0 };

/// Scale >= 1e-4: 2^ceil(log2(1e-4)) = 2^-13.
const SCALE_1E4: u8 = 114;
/// Scale >= 1e-10: 2^-33.
const SCALE_1E10: u8 = 94;
/// amax >= 1e-4 for E4M3: 2^ceil(log2(1e-4 / 448)) = 2^-22.
const AMAX_1E4_E4M3: u8 = 105;
/// amax >= 1e-4 for E2M1: 2^ceil(log2(1e-4 / 6)) = 2^-15.
const AMAX_1E4_E2M1: u8 = 112;
/// amax >= 6 x 2^-126 for E2M1.
const AMAX_TINY_E2M1: u8 = 1;

const POWER: PowerScale = PowerScale {
    rule: PowerRule::Rceil,
    min_code: 0,
    zero_code: None,
    inf_code: None,
    nan_code: None,
    store: PowerStore::E8M0,
};

const fn base(element: Element, cols: usize, scale: Scale) -> Scheme {
    Scheme {
        element,
        block: Block { rows: 1, cols },
        scale,
        quotient: Quotient::Divide,
        cast: Cast::CANONICAL,
        pack: Pack::Bits,
    }
}

const fn power(element: Element, cols: usize, scale: PowerScale) -> Scheme {
    base(element, cols, Scale::Power(scale))
}

const fn floored(min_code: u8) -> PowerScale {
    PowerScale { min_code, ..POWER }
}

/// FP4 cannot write NaN: its block is poisoned.
const fn floored_fp4(min_code: u8) -> PowerScale {
    PowerScale { min_code, nan_code: Some(0xFF), ..POWER }
}

const fn linear(
    element: Element,
    block: Block,
    max: f32,
    floor: Floor,
    quotient: Quotient,
) -> Scheme {
    let scale = Scale::Linear(LinearScale { max, arith: ScaleArith::Divide, floor });
    Scheme { block, quotient, ..base(element, 0, scale) }
}

const NV: NvScale = NvScale {
    global: Global::None,
    arith: ScaleArith::Reciprocal,
    floor: 0.001_953_125, // 2^-9
    round_up: false,
    four_over_six: false,
    zero_code: None,
};

const fn nvfp4(scale: NvScale) -> Scheme {
    base(Element::E2M1, 16, Scale::Nv(scale))
}

const TIES_TO_ZERO: Cast =
    Cast { rounding: Rounding::NearestTowardZero, zero: ZeroSign::Clear, ..Cast::CANONICAL };

struct List(Vec<Preset>);

impl List {
    fn add(
        &mut self,
        name: impl Into<String>,
        (engine, version): (&'static str, &'static str),
        note: &'static str,
        scheme: Scheme,
    ) {
        self.0.push(Preset { name: name.into(), engine, version, note, scheme });
    }
}

const VLLM: (&str, &str) = ("vLLM", "2026 main, cache kernels");
const SGLANG: (&str, &str) = ("SGLang", "0.5.23");
const SGLANG_OLD: (&str, &str) = ("SGLang", "before 0.5.23, fp4_e2m1");
const FLASHMLA: (&str, &str) = ("FlashMLA", "2026-04-29");
const DEEPSEEK: (&str, &str) = ("DeepSeek V4 reference", "2026");
const DEEPGEMM: (&str, &str) = ("DeepGEMM", "2026-06-23");
const TILEKERNELS: (&str, &str) = ("TileKernels", "2026-04-23");
const TORCHAO: (&str, &str) = ("torchao", "0.18.0");
const MODELOPT: (&str, &str) = ("nvidia-modelopt", "0.47.0");
const MLX: (&str, &str) = ("MLX", "0.32.4");
const ONNX: (&str, &str) = ("ONNX", "1.23.2");
const KIVI: (&str, &str) = ("KIVI", "2025-11-20");
const AMD: (&str, &str) = ("vLLM on gfx942", "2026 main");

fn fp8_linear(list: &mut List) {
    use Quotient::{Divide, MaxOverAmax, Reciprocal};
    let (e, floor) = (Element::E4M3Fn, Floor::Amax(1e-4));
    let tile = Block { rows: 128, cols: 128 };
    let channel = Block { rows: 128, cols: 1 };
    let raw = |block, floor, quotient| linear(e, block, 448.0, floor, quotient);
    let name = "fp8_e4m3.raw_f32.128";
    list.add(
        name,
        VLLM,
        "656-byte record: scale as it is, floor FLT_MIN",
        raw(ROW_128, Floor::Scale(f32::MIN_POSITIVE), Divide),
    );
    list.add(
        format!("{name}.sglang"),
        SGLANG,
        "no floor; x times 1/s",
        raw(ROW_128, Floor::None, Reciprocal),
    );
    list.add(
        format!("{name}.deepgemm"),
        DEEPGEMM,
        "amax >= 1e-4; x times 1/s",
        raw(ROW_128, floor, Reciprocal),
    );
    list.add(
        format!("{name}.tilekernels"),
        TILEKERNELS,
        "amax >= 1e-4; x times 448/amax",
        raw(ROW_128, floor, MaxOverAmax),
    );
    list.add(
        "fp8_e4m3.raw_f32.128x128",
        DEEPGEMM,
        "one scale per 128x128 tile",
        raw(tile, floor, Reciprocal),
    );
    list.add(
        "fp8_e4m3.raw_f32.channel128",
        DEEPGEMM,
        "one scale per channel and 128 tokens",
        raw(channel, floor, Reciprocal),
    );
    list.add(
        "fp8_e4m3.per_token_head",
        VLLM,
        "one fp32 scale per row of head_dim",
        raw(WHOLE_ROW, Floor::Scale(f32::MIN_POSITIVE), Divide),
    );
    list.add(
        "fp8_e4m3.static",
        VLLM,
        "kv_cache_dtype fp8 / fp8_e4m3: scale given per tensor or head",
        base(e, 0, Scale::Given),
    );
    list.add(
        "fp8_e5m2.static",
        VLLM,
        "kv_cache_dtype fp8_e5m2",
        base(Element::E5M2, 0, Scale::Given),
    );
    list.add(
        "fp8_e4m3fnuz.static",
        AMD,
        "bytes are not e4m3fn: half the value, 0x80 is NaN",
        base(Element::E4M3Fnuz, 0, Scale::Given),
    );
    list.add(
        "fp8_e5m2fnuz.static",
        AMD,
        "bytes are not e5m2",
        base(Element::E5M2Fnuz, 0, Scale::Given),
    );
}

fn fp8_power(list: &mut List) {
    let e = Element::E4M3Fn;
    let as_f32 = |min_code| PowerScale { store: PowerStore::F32, ..floored(min_code) };
    let name = "fp8_e4m3.pow2_f32.128";
    list.add(
        name,
        FLASHMLA,
        "656-byte record, exact in every reader; scale >= 1e-4",
        power(e, 128, as_f32(SCALE_1E4)),
    );
    list.add(
        format!("{name}.amax_floor"),
        VLLM,
        "V3.2 index key: amax >= 1e-4",
        power(e, 128, as_f32(AMAX_1E4_E4M3)),
    );
    list.add(format!("{name}.no_floor"), ("kvstore", "1"), "no floor", power(e, 128, as_f32(0)));
    for cols in [32, 64, 128] {
        let name = format!("fp8_e4m3.ue8m0.{cols}");
        list.add(
            name.clone(),
            VLLM,
            "V4 and V4.1 caches: amax >= 1e-4",
            power(e, cols, floored(AMAX_1E4_E4M3)),
        );
        list.add(
            format!("{name}.scale_floor"),
            if cols == 32 { SGLANG } else { FLASHMLA },
            "scale >= 1e-4",
            power(e, cols, floored(SCALE_1E4)),
        );
    }
    for cols in [32, 128] {
        let name = format!("fp8_e4m3.ue8m0.{cols}");
        let deepgemm =
            PowerScale { inf_code: Some(254), nan_code: Some(254), ..floored(AMAX_1E4_E4M3) };
        let tilekernels =
            PowerScale { inf_code: Some(255), nan_code: Some(0), ..floored(AMAX_1E4_E4M3) };
        list.add(
            format!("{name}.deepgemm"),
            DEEPGEMM,
            "scale 254 for a block with Inf or NaN",
            power(e, cols, deepgemm),
        );
        list.add(
            format!("{name}.tilekernels"),
            TILEKERNELS,
            "scale 255 for Inf, 0 for NaN",
            power(e, cols, tilekernels),
        );
    }
}

fn mx(list: &mut List) {
    use Element::{E2M1, E2M3, E3M2, E4M3Fn, E5M2};
    let rules = [
        ("floor", PowerRule::Floor),
        ("rceil", PowerRule::Rceil),
        ("even", PowerRule::Even),
        ("ceil", PowerRule::Ceil),
    ];
    let formats = [
        ("mxfp8_e4m3", E4M3Fn),
        ("mxfp8_e5m2", E5M2),
        ("mxfp6_e2m3", E2M3),
        ("mxfp6_e3m2", E3M2),
        ("mxfp4", E2M1),
    ];
    for (format, element) in formats {
        for (suffix, rule) in rules {
            let inf_code = if rule == PowerRule::Rceil { Some(254) } else { None };
            let scale = PowerScale { rule, inf_code, nan_code: Some(0xFF), ..POWER };
            let scheme = power(element, 32, scale);
            list.add(format!("{format}.{suffix}"), TORCHAO, "OCP MX 1.0, E8M0 per 32", scheme);
            if element.bits() == 6 {
                let scheme = Scheme { pack: Pack::Bytes, ..scheme };
                list.add(
                    format!("{format}.{suffix}.unpacked"),
                    TORCHAO,
                    "one code per byte",
                    scheme,
                );
            }
        }
    }
    let mlx =
        PowerScale { zero_code: Some(127), inf_code: Some(254), nan_code: Some(0xFF), ..POWER };
    let modelopt = PowerScale { inf_code: Some(254), nan_code: Some(0), ..POWER };
    let ties = |scheme| Scheme { cast: TIES_TO_ZERO, ..scheme };
    let to_zero = Cast { zero: ZeroSign::Keep, ..TIES_TO_ZERO };
    list.add("mxfp8_e4m3.mlx", MLX, "zero block 127", power(E4M3Fn, 32, mlx));
    list.add(
        "mxfp4.mlx",
        MLX,
        "ties toward zero, -0 cleared, zero block 127",
        ties(power(E2M1, 32, mlx)),
    );
    list.add("mxfp8_e4m3.modelopt", MODELOPT, "NaN gives scale 0", power(E4M3Fn, 32, modelopt));
    let modelopt = PowerScale { inf_code: Some(0), ..modelopt };
    let scheme = Scheme { cast: to_zero, ..power(E2M1, 32, modelopt) };
    list.add(
        "mxfp4.modelopt",
        MODELOPT,
        "ties toward zero; it writes +0 as code 8, this 0",
        scheme,
    );
}

fn fp4(list: &mut List) {
    let e = Element::E2M1;
    list.add(
        "fp4.ue8m0.32",
        DEEPSEEK,
        "V4 index key: amax >= 6*2^-126, ties to even",
        power(e, 32, floored_fp4(AMAX_TINY_E2M1)),
    );
    for cols in [32, 128] {
        let name = format!("fp4.ue8m0.{cols}");
        let deepgemm =
            PowerScale { inf_code: Some(254), nan_code: Some(254), ..floored(AMAX_1E4_E2M1) };
        let tilekernels =
            PowerScale { inf_code: Some(255), nan_code: Some(0), ..floored(AMAX_TINY_E2M1) };
        let scheme = Scheme { cast: TIES_TO_ZERO, ..power(e, cols, deepgemm) };
        list.add(
            format!("{name}.deepgemm"),
            DEEPGEMM,
            "amax >= 1e-4, ties toward zero, -0 cleared",
            scheme,
        );
        list.add(
            format!("{name}.tilekernels"),
            TILEKERNELS,
            "amax >= 6*2^-126, ties to even",
            power(e, cols, tilekernels),
        );
    }
    let sglang = power(e, 32, floored_fp4(SCALE_1E4));
    list.add(
        "fp4.ue8m0.32.sglang",
        SGLANG,
        "index key: scale >= 1e-4, ties toward zero",
        Scheme { cast: TIES_TO_ZERO, ..sglang },
    );
    list.add("fp4.ue8m0.32.sglang_rne", SGLANG, "index key: scale >= 1e-4, ties to even", sglang);
    let away =
        Cast { rounding: Rounding::NearestAway, zero: ZeroSign::ClearExact, ..Cast::CANONICAL };
    let scheme = Scheme { cast: away, ..power(e, 16, floored_fp4(SCALE_1E10)) };
    list.add(
        "fp4.ue8m0.16",
        SGLANG_OLD,
        "E8M0 per 16, scale >= 1e-10, ties away from zero",
        scheme,
    );
}

fn nv(list: &mut List) {
    use Global::{Inverse, Multiplier, None as NoGlobal};
    let exact = NvScale { arith: ScaleArith::Divide, ..NV };
    let torchao = |global| Scheme {
        quotient: Quotient::GlobalReciprocal,
        ..nvfp4(NvScale { global, floor: 0.015_625, ..exact })
    };
    let exact_zero = Cast { zero: ZeroSign::ClearExact, ..Cast::CANONICAL };
    let vllm = NvScale { floor: 0.0, ..exact };
    let over = NvScale { four_over_six: true, ..vllm };
    let up = NvScale { round_up: true, ..vllm };
    list.add(
        "nvfp4",
        SGLANG,
        "V4.1 288-byte record: amax*fl(1/6) in 2^-9..448, no second level",
        nvfp4(NV),
    );
    list.add(
        "nvfp4.recip",
        VLLM,
        "352-byte record: x times 1/s",
        Scheme { quotient: Quotient::Reciprocal, ..nvfp4(NV) },
    );
    list.add("nvfp4.torchao", TORCHAO, "scale >= 2^-6, no second level", torchao(NoGlobal));
    list.add(
        "nvfp4.torchao.global",
        TORCHAO,
        "scale >= 2^-6, global multiplies",
        torchao(Multiplier),
    );
    list.add(
        "nvfp4.modelopt.global",
        MODELOPT,
        "scale >= 2^-9, zero block 1.0, global multiplies",
        Scheme {
            cast: exact_zero,
            ..nvfp4(NvScale { global: Multiplier, zero_code: Some(0x38), ..exact })
        },
    );
    list.add(
        "nvfp4.mlx",
        MLX,
        "no floor, ties toward zero, -0 cleared",
        Scheme { cast: TIES_TO_ZERO, ..nvfp4(vllm) },
    );
    list.add("nvfp4.global", VLLM, "GQA pages, exact arithmetic (the GPU's reciprocal is approximate); k_scale/v_scale multiplies", nvfp4(NvScale { global: Multiplier, ..vllm }));
    list.add(
        "nvfp4.inverse",
        ("compressed-tensors", "0.20.1"),
        "checkpoint global scale, an inverse",
        nvfp4(NvScale { global: Inverse, ..vllm }),
    );
    list.add(
        "nvfp4.4over6",
        VLLM,
        "amax/6 or amax/4, the smaller squared error",
        nvfp4(NvScale { global: NoGlobal, ..over }),
    );
    list.add(
        "nvfp4.4over6.global",
        VLLM,
        "nvfp4_4over6 GQA pages",
        nvfp4(NvScale { global: Multiplier, ..over }),
    );
    list.add("nvfp4.round_up", ("cuDNN", "documentation"), "scale rounded up", nvfp4(up));
}

fn integers(list: &mut List) {
    let e = Element::Int8;
    let int8 = |block, floor, quotient| linear(e, block, 127.0, floor, quotient);
    let symmetric = int8(WHOLE_ROW, Floor::Scale(1e-6), Quotient::Divide);
    list.add("int8.per_token_head", ONNX, "amax/127 >= 1e-6, half to even", symmetric);
    let truncate = Cast { rounding: Rounding::Truncate, ..Cast::CANONICAL };
    let vllm = int8(WHOLE_ROW, Floor::Scale(1e-6), Quotient::Reciprocal);
    list.add(
        "int8.per_token_head.vllm",
        VLLM,
        "truncates: 6 dB lost",
        Scheme { cast: truncate, ..vllm },
    );
    list.add(
        "int8.per_channel",
        ONNX,
        "one scale per channel over all rows",
        int8(Block { rows: 0, cols: 1 }, Floor::None, Quotient::Divide),
    );
    for (suffix, element) in
        [("int8", Element::Uint8), ("int4", Element::Uint4), ("int2", Element::Uint2)]
    {
        let keys = Scheme {
            block: Block { rows: 32, cols: 1 },
            pack: Pack::WordsAlongRows,
            ..base(element, 0, Scale::Affine)
        };
        let values = base(element, 32, Scale::Affine);
        list.add(
            format!("kivi_k.{suffix}"),
            KIVI,
            "per channel, groups of 32 tokens, fp16 scale and minimum",
            keys,
        );
        list.add(
            format!("kivi_v.{suffix}"),
            KIVI,
            "per token, groups of 32 channels, fp16 scale and minimum",
            values,
        );
    }
}

static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let mut list = List(Vec::new());
    for add in [fp8_linear, fp8_power, mx, fp4, nv, integers] {
        add(&mut list);
    }
    list.0
});

/// All presets.
#[must_use]
pub fn all() -> &'static [Preset] {
    &PRESETS
}

/// The preset of a name.
///
/// # Errors
/// [`Error::Unknown`] with the names there are.
pub fn named(name: &str) -> Result<&'static Preset, Error> {
    all().iter().find(|p| p.name == name).ok_or_else(|| {
        let names: Vec<&str> = all().iter().map(|p| p.name.as_str()).collect();
        Error::Unknown { kind: "preset", given: name.to_owned(), known: names.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, preset) in all().iter().enumerate() {
            assert_eq!(all().iter().position(|p| p.name == preset.name), Some(i));
            assert_eq!(named(&preset.name), Ok(preset));
        }
        let error = named("fp9").expect_err("there is no such preset").to_string();
        assert!(error.contains("\"fp9\"") && error.contains("mxfp4.floor"), "{error}");
    }
}
