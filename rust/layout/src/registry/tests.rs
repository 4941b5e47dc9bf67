//! The built-in entries read, and mistakes in a user's file get their line and mend.

use super::*;
use crate::account::Basis;

#[test]
fn every_entry_has_a_source_and_its_forms() {
    let registry = Registry::built_in();
    let mut names = std::collections::HashSet::new();
    for architecture in registry.architectures() {
        assert!(!architecture.source.is_empty(), "{}", architecture.name);
        assert!(
            ["H", "M", "L"].contains(&architecture.confidence.as_str()),
            "{}",
            architecture.name
        );
        for name in architecture.aliases.iter().chain([&architecture.name]) {
            assert!(names.insert(plain(name)), "{name} is used twice");
        }
        for (form, source) in architecture.forms() {
            assert!(!source.is_empty(), "{} {form}", architecture.name);
            architecture.layout(Some(form), true).unwrap();
        }
        if let Some(after) = &architecture.after {
            registry.find(after).unwrap();
        }
        if let Some(weights) = &architecture.weights {
            assert!(weights.billions > 0.0 && weights.bytes_per_parameter > 0.0);
        }
    }
    assert!(registry.records().all(|record| !record.source.is_empty()));
}

#[test]
fn names() {
    let registry = Registry::built_in();
    let name = |text: &str| registry.find(text).map(|a| a.name.as_str());
    assert_eq!(name("deepseek-ai/DeepSeek-V3.2-Exp"), Ok("deepseek-v3.2"));
    assert_eq!(name("DeepSeek-R1"), Ok("deepseek-v3"));
    let error = name("deepseek-v5").unwrap_err();
    assert!(error.what.contains("deepseek-v5") && error.mend.contains("deepseek-v"), "{error}");
    let error = registry.find("deepseek-v3").unwrap().layout(Some("mlx:int3"), false).unwrap_err();
    assert!(error.mend.contains("vllm:fp8_ds_mla"), "{error}");
}

const MINE: &str = r#"
[[record]]
name = "mine"
planes = [512, 16]
source = "my kernel"

[[arch]]
name = "my-model"
layers = 12
block_tokens = 128
source = "me"

[[arch.form]]
name = "native"
records = { main = "mine", window = "bf16" }

[[arch.group]]
name = "main"
layers = "0-11/2"
ratio = 4
elements = 512

[[arch.group]]
name = "window"
kind = "window"
window = 256
layers = [1, 3, 5]
heads = 2
dim = 64
role = "window"
"#;

#[test]
fn a_users_architecture() {
    let registry = Registry::with_file("mine.toml", MINE).unwrap();
    let layout = registry.find("my-model").unwrap().layout(None, false).unwrap();
    assert_eq!(layout.bytes_per_token(Basis::Logical), (6 * 528 / 4).into());
    assert_eq!(layout.groups()[1].record_bytes(), 2 * 2 * 64 * 2);
    assert!(registry.find("deepseek-v3").is_ok(), "the built-in ones are there as well");
}

/// Replaces a line of the example and gives the error: its line, what, mend.
fn mistake(line: &str, with: &str) -> (usize, String, String) {
    assert_eq!(MINE.matches(line).count(), 1, "{line}");
    let error = Registry::with_file("mine.toml", &MINE.replace(line, with)).unwrap_err();
    assert_eq!(error.origin, "mine.toml");
    (error.line, error.what, error.mend)
}

fn line_of(text: &str) -> usize {
    MINE.lines().position(|line| line.contains(text)).unwrap() + 1
}

#[test]
fn a_ratio_that_does_not_divide_the_block() {
    let (line, what, mend) = mistake("ratio = 4", "ratio = 3");
    assert_eq!(line, line_of("ratio = 4"));
    assert_eq!(what, "group \"main\": ratio = 3 does not divide block_tokens = 128");
    assert_eq!(mend, "use a divisor of 128, or set block_tokens to a multiple of 3");
}

#[test]
fn an_unknown_record() {
    let (line, what, mend) = mistake("main = \"mine\"", "main = \"fp8_ds_mla\"");
    assert_eq!(line, line_of("records ="));
    assert_eq!(what, "group \"main\": record \"fp8_ds_mla\" is unknown");
    assert!(mend.starts_with("add [[record]], or use one like fp8_ds_mla/"), "{mend}");
}

#[test]
fn a_window_without_a_size() {
    let (line, what, mend) = mistake("window = 256\n", "\n");
    assert_eq!(line, line_of("kind = \"window\""));
    assert_eq!(what, "group \"window\": kind = \"window\" without a size");
    assert_eq!(mend, "add window = <tokens>, the current one included");
}

#[test]
fn an_owner_that_does_not_exist() {
    let (line, what, mend) = mistake("layers = [1, 3, 5]", "layers = [1, 3, 12]");
    assert_eq!(line, line_of("layers = [1, 3, 5]"));
    assert_eq!(
        what,
        "group \"window\": owner layer 12 does not exist: the architecture's layers end at 12"
    );
    assert_eq!(mend, "raise layers, or name an owner below it");
}

#[test]
fn other_mistakes() {
    let (line, what, _) = mistake("layers = \"0-11/2\"", "layers = \"0-1x\"");
    assert_eq!(line, line_of("layers = \"0-11/2\""));
    assert!(what.contains("\"1x\" is not a layer number"), "{what}");
    let (line, what, _) = mistake("elements = 512", "element = 512");
    assert_eq!(line, line_of("elements = 512"));
    assert!(what.contains("unknown field `element`"), "{what}");
    let (_, what, mend) = mistake("records = { main = \"mine\", window = \"bf16\" }", "");
    assert!(what.contains("no record for group \"main\""), "{what}");
    assert!(mend.contains("records.main"), "{mend}");
    let (line, what, _) = mistake("planes = [512, 16]", "planes = []");
    assert_eq!((line, what.as_str()), (3, "record \"mine\": planes = []"));
    let (line, what, _) = mistake("source = \"me\"", "source = \"me\"\nforms = [\"dens\"]");
    assert_eq!(line, line_of("source = \"me\"") + 1);
    assert!(what.contains("form set \"dens\" is unknown"), "{what}");
    let (_, what, _) = mistake("source = \"me\"", "");
    assert!(what.contains("missing field `source`"), "{what}");
    let (line, what, _) = mistake("layers = 12", "layers = twelve");
    assert_eq!(line, line_of("layers = 12"), "{what}");
    let (_, what, _) = mistake("elements = 512", "");
    assert!(what.contains("the numbers of one entry are not given"), "{what}");
    // a set's form has no record for this group: the line is the one that names the set
    let (line, what, _) = mistake("source = \"me\"", "source = \"me\"\nforms = [\"dsa\"]");
    assert_eq!(line, line_of("source = \"me\"") + 1, "{what}");
}
