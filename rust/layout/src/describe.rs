//! A layout in words, for people.

use std::fmt::Write;

use crate::account::{Basis, WindowRows};
use crate::group::{Group, Kind, Shard};
use crate::layout::Area;
use crate::{Fraction, Layout};

impl Layout {
    /// The layout as a small table: one line per group, then its objects and what they cost.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        let block = self.block_tokens();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} in the form {}: blocks of {block} tokens, resume points at multiples of {}",
            self.name(),
            self.form(),
            self.alignment()
        );
        for group in self.groups() {
            let _ = writeln!(out, "  {}", describe_group(group, block));
        }
        for (area, what) in [
            (Area::Body, "body of a block"),
            (Area::Window, "window of a block"),
            (Area::Checkpoint, "checkpoint"),
        ] {
            if self.area_bytes(area) > 0 {
                let _ = writeln!(out, "  {what}: {} B", self.area_bytes(area));
            }
        }
        let per_token = self.bytes_per_token(Basis::Logical);
        let _ = writeln!(out, "  {} B per token ({per_token})", decimal(per_token));
        if let Some(tokens) = self.exact_replay_tokens().filter(|&tokens| tokens > 0) {
            let _ = writeln!(out, "  exact replay: {tokens} tokens over stored entries");
        }
        if let Some(tokens) = self.replay().bounded {
            let ids = self.replay().extra_ids;
            let _ = writeln!(out, "  bounded replay: {tokens} tokens, {ids} token ids before them");
        }
        out
    }
}

fn describe_group(group: &Group, block: u32) -> String {
    let kind = match group.kind {
        Kind::Entries => "entries".to_owned(),
        Kind::Window(w) => format!("window of {w}"),
        Kind::State => "state".to_owned(),
    };
    let planes: Vec<_> = group.page.planes.iter().map(u32::to_string).collect();
    let shard = match group.shard {
        Shard::Replicated => "on every rank".to_owned(),
        Shard::Heads(heads) => format!("split by {heads} heads"),
    };
    let rows = match group.state {
        Some(state) => state.kept.to_string(),
        None => format!("1 per {}", group.ratio),
    };
    let held = group.bytes_at(u64::from(block), Basis::Logical, WindowRows::Held);
    format!(
        "{:<14} {kind:<14} layers {:<24} {} B ({}), {rows}, {shard}, {held} B a block{}",
        group.name,
        runs(&group.layers),
        planes.join(" + "),
        group.page.format,
        if group.draft { ", draft" } else { "" }
    )
}

/// Layers as runs: "0-2, 6-74/4".
pub(crate) fn runs(layers: &[u32]) -> String {
    let mut parts = Vec::new();
    let mut rest = layers;
    while let [first, tail @ ..] = rest {
        let step = tail.first().map_or(1, |next| next - first);
        let mut len = 1;
        while rest.get(len).is_some_and(|&next| next == first + step * len as u32) {
            len += 1;
        }
        if len == 2 && step > 1 {
            len = 1; // two layers apart are no run
        }
        let last = rest[len - 1];
        parts.push(match (len, step) {
            (1, _) => first.to_string(),
            (_, 1) => format!("{first}-{last}"),
            _ => format!("{first}-{last}/{step}"),
        });
        rest = &rest[len..];
    }
    parts.join(", ")
}

fn decimal(value: Fraction) -> String {
    let text = format!("{:.4}", value.to_f64());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn layers_as_runs() {
        let text = |layers: &[u32]| runs(layers);
        assert_eq!(text(&[0, 1, 2, 6, 10, 14]), "0-2, 6-14/4");
        assert_eq!(text(&[2, 8, 14]), "2-14/6");
        assert_eq!(text(&[20]), "20");
        assert_eq!(text(&[0, 1]), "0-1");
        assert_eq!(text(&[0, 5]), "0, 5");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn v41_in_words() {
        let registry = Registry::built_in();
        let layout = registry.find("deepseek-v4.1-flash").unwrap().layout(None, false).unwrap();
        let text = layout.describe();
        for part in
            ["blocks of 128", "2-14/6", "113920 B", "890 B per token", "5120", "3 token ids"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
