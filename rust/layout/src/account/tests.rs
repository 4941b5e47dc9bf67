//! Accounting is additive over tokens, groups, layers and ranks.

use proptest::prelude::*;

use super::*;
use crate::registry::Registry;

fn any_layout() -> impl Strategy<Value = Layout> {
    let all = Registry::built_in().architectures();
    (0..all.len(), any::<prop::sample::Index>(), any::<bool>()).prop_map(move |(i, form, draft)| {
        let forms: Vec<_> = all[i].forms().map(|(name, _)| name).collect();
        all[i].layout(Some(forms[form.index(forms.len())]), draft).unwrap()
    })
}

proptest! {
    #[test]
    fn additive_over_tokens(layout in any_layout(), blocks in 0u64..5_000, more in 0u64..5_000) {
        let block = u64::from(layout.block_tokens());
        for basis in [Basis::Logical, Basis::Padded] {
            let at = |blocks: u64| layout.entry_bytes(blocks * block, basis);
            prop_assert_eq!(at(blocks) + at(more), at(blocks + more));
            let per_token = layout.bytes_per_token(basis) * (blocks * block).into();
            prop_assert_eq!(per_token, at(blocks).into());
        }
        // inside a block entries only grow
        let n = blocks * block + more;
        prop_assert!(layout.entry_bytes(n, Basis::Logical) <= layout.entry_bytes(n + 1, Basis::Logical));
    }

    #[test]
    fn additive_over_groups_and_layers(layout in any_layout(), n in 0u64..300_000) {
        for basis in [Basis::Logical, Basis::Padded] {
            let groups = layout.groups().iter();
            let by_group: u64 = groups.map(|g| g.bytes_at(n, basis, WindowRows::Resume)).sum();
            let by_kind = layout.entry_bytes(n, basis)
                + layout.window_bytes_at(n, basis, WindowRows::Resume)
                + layout.state_bytes(n, basis);
            let layers = 0..layout.model_layers() + 8;
            let by_layer: u64 = layers.map(|layer| layout.layer_bytes(layer, n, basis)).sum();
            prop_assert_eq!(by_group, by_kind);
            prop_assert_eq!(by_group, by_layer);
        }
        prop_assert!(layout.entry_bytes(n, Basis::Logical) <= layout.entry_bytes(n, Basis::Padded));
    }

    #[test]
    fn ranks_share_all_bytes(
        layout in any_layout(), n in 0u64..100_000,
        tp in prop::sample::select(vec![1u32, 2, 4, 8, 16]), pp in 1u32..5, cp in 1u32..4,
    ) {
        let ranks = Ranks { tp, pp, cp };
        let Ok(copies) = layout.tp_copies(tp) else {
            return Ok(()); // heads that this size does not split
        };
        let mut held = vec![0u64; layout.groups().len()];
        for tp in 0..tp {
            for pp in 0..pp {
                for cp in 0..cp {
                    let rank = Rank { tp, pp, cp };
                    let bytes = layout.rank_bytes(n, ranks, rank, Basis::Logical).unwrap();
                    held.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
                }
            }
        }
        for ((group, held), copies) in layout.groups().iter().zip(held).zip(copies) {
            let whole = group.bytes_at(n, Basis::Logical, WindowRows::Held);
            // a context rank may cut a pooled entry only at a block's tail, which no rank counts
            let copies = u64::from(copies) * if group.kind == Kind::Entries { 1 } else { u64::from(cp) };
            prop_assert_eq!(held, whole * copies, "{}", group.name);
        }
    }

    #[test]
    fn reads_never_exceed_what_readers_could_see(layout in any_layout(), n in 0u64..2_000_000) {
        let seen: u64 = layout.groups().iter().filter(|g| !g.draft).map(|g| {
            let readers: u64 = g.reads.iter().map(|r| u64::from(r.layers)).sum();
            g.layer_bytes(n, Basis::Logical, WindowRows::Held) * readers.max(g.layers.len() as u64)
        }).sum();
        prop_assert!(layout.read_bytes(n) <= seen);
        prop_assert!(layout.read_bytes(n) <= layout.read_bytes(n + 1));
    }

    #[test]
    fn pages_tile_the_objects(layout in any_layout()) {
        for area in crate::Area::ALL {
            let mut pages: Vec<_> = layout.groups().iter().enumerate()
                .flat_map(|(i, g)| g.layers.iter().map(move |&l| (i, l)))
                .filter_map(|(i, l)| layout.page(i, l))
                .filter(|page| page.area == area && page.len > 0)
                .collect();
            let cuts: Vec<_> = pages.iter().map(|page| page.offset).collect();
            prop_assert_eq!(&cuts, &layout.area_cuts(area), "in group order, layers ascending");
            pages.sort_by_key(|page| page.offset);
            let mut end = 0;
            for page in &pages {
                prop_assert!(page.offset >= end && page.offset < end + crate::GROUP_ALIGN);
                prop_assert!(page.offset.is_multiple_of(crate::PAGE_ALIGN));
                end = page.offset + page.len;
            }
            prop_assert_eq!(end, layout.area_bytes(area));
        }
    }

    #[test]
    fn fractions_add_and_order(a in 0u64..1 << 40, b in 1u64..1 << 20, c in 0u64..1 << 40, d in 1u64..1 << 20) {
        let make = |n: u64, d: u64| Fraction::new(n.into(), d.into()).unwrap();
        let (x, y) = (make(a, b), make(c, d));
        prop_assert_eq!(x + y, y + x);
        prop_assert_eq!(x * make(b, 1), a.into());
        prop_assert_eq!(x.cmp(&y), (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b))));
        if c > 0 {
            prop_assert_eq!(x / y * y, x);
        }
    }
}

#[test]
fn ranks_that_cannot_be() {
    let llama = Registry::built_in().find("llama-3-8b").unwrap().layout(None, false).unwrap();
    let rank = |tp, at| {
        llama.rank_bytes(
            100,
            Ranks { tp, pp: 1, cp: 1 },
            Rank { tp: at, pp: 0, cp: 0 },
            Basis::Logical,
        )
    };
    let error = rank(3, 0).unwrap_err().to_string();
    assert_eq!(error, "group \"kv\": tp = 3 and 8 heads: one must divide the other");
    let error = rank(2, 2).unwrap_err().to_string();
    assert_eq!(error, "tp = 2 with rank 2: the size must be 1 or more, the rank below it");
    assert_eq!(rank(16, 3), Ok(vec![100 * 131_072 / 8]), "beyond the heads they are replicated");
    let copies = |name: &str, tp| {
        Registry::built_in().find(name).unwrap().layout(None, false).unwrap().tp_copies(tp)
    };
    assert_eq!(copies("deepseek-v3", 8), Ok(vec![8]), "MLA is the same on every rank");
    assert_eq!(copies("llama-3-8b", 8), Ok(vec![1]));
    assert_eq!(copies("llama-3-8b", 16), Ok(vec![2]));
}
