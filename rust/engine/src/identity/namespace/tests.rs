use super::*;
use proptest::prelude::*;

fn described() -> DescriptionBuilder {
    Description::builder()
        .model("deepseek-v4.1-flash")
        .revision("0f1e2d3c")
        .weights(WeightsKind::Full, [0x11; 32])
        .dtype("fp8_e4m3")
        .scale_rule("ue8m0/128")
        .layout([0x22; 32])
        .block_tokens(128)
}

fn any_description() -> impl Strategy<Value = Description> {
    let kind = prop::sample::select(&WeightsKind::ALL[..]);
    let axis = (prop::sample::select(&["tp", "pp", "cp", "dcp", "dp"][..]), 0u32..4, 4u32..9);
    let extra = prop::collection::btree_map("[a-z_=,\u{e9}]{1,6}", ".{0,8}", 0..4);
    (
        (any::<u32>(), ".{1,12}", ".{0,6}", kind, prop::collection::vec(any::<u8>(), 16..40)),
        (prop::option::of(prop::collection::vec(any::<u8>(), 16..40)), ".{1,6}", ".{1,6}"),
        (
            any::<[u8; 32]>(),
            1..=MAX_BLOCK_TOKENS,
            prop::collection::vec(axis, 0..5),
            ".{1,6}",
            extra,
        ),
    )
        .prop_map(|(first, second, third)| {
            let (version, model, revision, kind, digest) = first;
            let (adapter, dtype, scale_rule) = second;
            let (layout, block_tokens, mut axes, hash_rule, extra) = third;
            let mut builder = Description::builder()
                .format_version(version)
                .model(model)
                .revision(revision)
                .weights(kind, digest)
                .allow_weights_by_name()
                .dtype(dtype)
                .scale_rule(scale_rule)
                .layout(layout)
                .block_tokens(block_tokens)
                .hash_rule(hash_rule);
            if let Some(adapter) = adapter {
                builder = builder.adapter(adapter);
            }
            axes.sort_unstable();
            axes.dedup_by_key(|(name, ..)| *name);
            for (name, rank, size) in axes {
                builder = builder.axis(name, rank, size);
            }
            for (name, value) in extra {
                builder = builder.extra(name, value);
            }
            builder.build().expect("the strategy stays within all limits")
        })
}

proptest! {
    #[test]
    fn decode_gives_back_what_was_encoded(description in any_description()) {
        prop_assert_eq!(Description::decode(&description.encode()), Ok(description));
    }

    /// Injective, and `differs` agrees with equality.
    #[test]
    fn distinct_descriptions_have_distinct_bytes(a in any_description(), b in any_description()) {
        prop_assert_eq!(a == b, a.encode() == b.encode());
        prop_assert_eq!(a == b, a.digest() == b.digest());
        prop_assert_eq!(a == b, a.differs(&b).is_empty());
    }

    /// Whatever decodes is canonical: it encodes to the very bytes that were read. So damage is an
    /// error or another description, never a second spelling of this one.
    #[test]
    fn damaged_bytes_are_refused_or_another_description(
        description in any_description(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = description.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(other) = Description::decode(&bytes) {
            prop_assert_eq!(other.encode(), bytes);
            prop_assert_ne!(other, description);
        }
    }

    #[test]
    fn cut_or_lengthened_bytes_are_refused(
        description in any_description(),
        at in any::<prop::sample::Index>(),
        more in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let bytes = description.encode();
        prop_assert!(Description::decode(&bytes[..at.index(bytes.len())]).is_err());
        prop_assert!(Description::decode(&[bytes, more].concat()).is_err());
    }

    #[test]
    fn decoding_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Description::decode(&bytes);
        let _ = Description::decode(&[b"kvn1", &bytes[..]].concat());
    }
}

/// Text moved from one field to the next, or between names and values, is another description.
#[test]
fn text_cannot_move_between_fields() {
    let text = |model: &str, revision: &str| described().model(model).revision(revision);
    let extra = |pairs: &[(&str, &str)]| {
        pairs.iter().fold(described(), |builder, (name, value)| builder.extra(*name, *value))
    };
    let all = [
        text("ab", "c"),
        text("a", "bc"),
        text("abc", ""),
        text("a\u{8}revision\u{2}\0bc", ""),
        extra(&[("ab", "c")]),
        extra(&[("a", "bc")]),
        extra(&[("a", "b"), ("c", "")]),
        extra(&[("a", "b\u{1}c\0\0")]),
        described().axis("a", 0, 2),
        described().axis("a", 1, 2),
        described().axis("a", 0, 2).axis("b", 0, 2),
    ];
    let mut bytes: Vec<_> = all.into_iter().map(|it| it.build().unwrap().encode()).collect();
    let count = bytes.len();
    bytes.sort();
    bytes.dedup();
    assert_eq!(bytes.len(), count);
}

#[test]
fn order_of_axes_and_axes_of_one_share_do_not_count() {
    let one = described().axis("tp", 1, 2).axis("pp", 0, 4).build().unwrap();
    let two = described().axis("pp", 0, 4).axis("cp", 0, 1).axis("tp", 1, 2).build().unwrap();
    assert_eq!(one.encode(), two.encode());
    assert_eq!(one.axes().iter().map(|axis| &*axis.name).collect::<Vec<_>>(), ["pp", "tp"]);
}

#[test]
fn a_weaker_weights_kind_never_hits_a_stronger_one() {
    let of = |kind| {
        described().weights(kind, [0x11; 32]).allow_weights_by_name().build().unwrap().digest()
    };
    let digests: std::collections::HashSet<_> = WeightsKind::ALL.into_iter().map(of).collect();
    assert_eq!(digests.len(), WeightsKind::ALL.len());
}

#[test]
fn weights_by_name_are_refused_unless_asked_for() {
    let by_name = || described().weights(WeightsKind::Name, *b"my-model");
    let error = by_name().build().unwrap_err();
    assert!(error.to_string().starts_with("weights is of kind name:"), "{error}");
    let description = by_name().allow_weights_by_name().build().unwrap();
    assert_eq!(Description::decode(&description.encode()), Ok(description));
}

#[test]
fn too_long_a_description_names_the_limit_and_the_longest_field() {
    let error = described().extra("rope_scaling", "x".repeat(900)).build().unwrap_err();
    let IdentityError::TooLong { length, limit: 960, longest, longest_length: 900 } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(longest, "extra.rope_scaling");
    assert!(*length > 960);
    let text = error.to_string();
    assert!(text.contains("960") && text.contains("extra.rope_scaling"), "{text}");
    assert!(described().model("m".repeat(100_000)).build().is_err());
    assert!(described().extra("a", "m".repeat(100_000)).build().is_err());

    let spare = 960 - described().build().unwrap().encode().len();
    let revision = described().build().unwrap().revision().len();
    let fits = described().revision("r".repeat(revision + spare)).build().unwrap();
    assert_eq!(fits.encode().len(), 960);
    assert!(described().revision("r".repeat(revision + spare + 1)).build().is_err());
}

#[test]
fn each_bad_field_is_named() {
    let of = |builder: DescriptionBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(of(Description::builder()), "namespace description: weights is missing");
    assert!(of(described().model("")).starts_with("model is empty"));
    assert!(of(described().dtype("")).starts_with("dtype is empty"));
    assert!(of(described().weights(WeightsKind::Hub, [1; 15])).starts_with("weights is 15 bytes"));
    assert!(of(described().weights(WeightsKind::Hub, [1; 65])).starts_with("weights is 65 bytes"));
    assert!(of(described().adapter([])).starts_with("adapter is 0 bytes"));
    assert!(of(described().adapter([1; 8])).starts_with("adapter is 8 bytes"));
    assert!(of(described().block_tokens(0)).starts_with("block_tokens is 0"));
    assert!(of(described().block_tokens(65_537)).starts_with("block_tokens is 65537"));
    assert!(of(described().axis("tp", 2, 2)).starts_with("axis \"tp\" is rank 2 of 2"));
    assert!(of(described().axis("tp", 0, 0)).starts_with("axis \"tp\" is rank 0 of 0"));
    assert!(of(described().axis("tp", 0, 2).axis("tp", 1, 2)).contains("given twice"));
    assert!(of(described().axis("tp", 0, 2).axis("tp", 0, 1)).contains("given twice"));
    assert!(of(described().axis("", 0, 2)).contains("1 to 255"));
    assert!(of(described().extra("x".repeat(256), "")).contains("1 to 255"));
}

#[test]
fn a_mismatch_reads_as_one_line() {
    let here = described().axis("tp", 0, 2).extra("rope_scaling", "yarn").build().unwrap();
    let there = described().dtype("bf16").axis("tp", 0, 4).build().unwrap();
    let line: Vec<String> = here.differs(&there).iter().map(ToString::to_string).collect();
    assert_eq!(
        line.join("; "),
        "dtype: \"fp8_e4m3\" here, \"bf16\" there; axes.tp: rank 0 of 2 here, rank 0 of 4 there; \
         extra.rope_scaling: \"yarn\" here, none there"
    );
}
