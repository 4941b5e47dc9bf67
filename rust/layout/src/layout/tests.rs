//! Construction: what is refused, where pages lie, what the canonical encoding tells apart.

use std::collections::HashMap;

use super::*;
use crate::group::{PageShape, Shard};
use crate::registry::Registry;

fn demo() -> Group {
    Group::entries("mla", 192, (0..4).collect())
}

fn refused(block_tokens: u32, groups: Vec<Group>) -> String {
    Layout::new("demo", block_tokens, groups).unwrap_err().to_string()
}

#[test]
fn the_demo_model() {
    let layout = Layout::new("demo", 64, vec![demo()]).unwrap();
    assert_eq!(
        (layout.body_bytes(), layout.window_bytes(), layout.checkpoint_bytes()),
        (49_152, 0, 0)
    );
    assert_eq!(layout.page(0, 3), Some(Page { area: Area::Body, offset: 3 * 12_288, len: 12_288 }));
    assert_eq!((layout.page(0, 4), layout.page(1, 0)), (None, None));
    assert_eq!(layout.page_cuts(), [0, 12_288, 24_576, 36_864]);
    assert_eq!((layout.alignment(), layout.max_window(), layout.has_state()), (1, 0, false));
    assert!(!layout.split_by_group());
}

#[test]
fn blocks_of_another_length() {
    let layout = Layout::new("demo", 64, vec![demo()]).unwrap().with_split(true);
    let shorter = layout.clone().with_block_tokens(16).unwrap();
    assert_eq!((shorter.block_tokens(), shorter.body_bytes()), (16, 49_152 / 4));
    assert!(shorter.split_by_group());
    assert_eq!(shorter.with_block_tokens(64).unwrap(), layout);
    let pooled = Layout::new("demo", 8, vec![demo().with_ratio(4)]).unwrap();
    for wrong in [0, 6] {
        assert_eq!(
            pooled.clone().with_block_tokens(wrong).unwrap_err().to_string(),
            format!(
                "layout \"demo\": block_tokens = {wrong}: must be a positive multiple of the \
                 layout's alignment, 4"
            )
        );
    }
}

#[test]
fn groups_start_at_64_and_pages_at_8() {
    let odd = Group::entries("odd", 3, vec![7, 1, 4]);
    let next = Group::entries("next", 5, vec![0]);
    let window = Group::window("window", 11, vec![0], 4);
    let layout = Layout::new("x", 3, vec![odd, window, next]).unwrap();
    assert_eq!(layout.groups()[0].layers, [1, 4, 7], "ascending owners");
    let page = |g, l| layout.page(g, l).map(|p| (p.area, p.offset, p.len)).unwrap();
    assert_eq!(page(0, 1), (Area::Body, 0, 9));
    assert_eq!(page(0, 4), (Area::Body, 16, 9));
    assert_eq!(page(0, 7), (Area::Body, 32, 9));
    assert_eq!(page(2, 0), (Area::Body, 64, 15));
    assert_eq!(page(1, 0), (Area::Window, 0, 33));
    assert_eq!((layout.body_bytes(), layout.window_bytes()), (79, 33));
    let whole = layout.group_page(0).unwrap();
    assert_eq!((whole.offset, whole.len), (0, 41));
}

#[test]
fn mistakes_name_group_field_value_and_limit() {
    assert_eq!(
        refused(64, vec![demo().with_ratio(3)]),
        "layout \"demo\", group \"mla\": ratio = 3: must be 1 or more and divide block_tokens = 64"
    );
    assert_eq!(refused(0, vec![demo()]), "layout \"demo\": block_tokens = 0: must be 1 to 65536");
    assert_eq!(refused(64, vec![]), "layout \"demo\": groups = 0: must be 1 to 256 groups");
    assert_eq!(
        refused(64, vec![demo(), demo()]),
        "layout \"demo\", group \"mla\": name = \"mla\": is the name of an earlier group too"
    );
    assert_eq!(
        refused(64, vec![Group::entries("a", 4, vec![])]),
        "layout \"demo\", group \"a\": layers = 0: must be 1 to 4096 owner layers"
    );
    assert_eq!(
        refused(64, vec![Group::entries("a", 4, vec![3, 2, 3])]),
        "layout \"demo\", group \"a\": layers = 3: this layer is listed twice"
    );
    assert_eq!(
        refused(64, vec![Group::entries("a", 0, vec![0])]),
        "layout \"demo\", group \"a\": planes = 0: each plane must have 1 byte or more per entry"
    );
    assert_eq!(
        refused(64, vec![Group::window("a", 4, vec![0], 1)]),
        "layout \"demo\", group \"a\": window = 1: must be 2 tokens or more"
    );
    let mut group = demo();
    group.page.page_entries = 48;
    assert_eq!(
        refused(64, vec![group]),
        "layout \"demo\", group \"mla\": page_entries = 48: must divide the 64 entries of one layer and block"
    );
    let big = Group::entries("big", 1 << 26, (0..4_000).collect());
    assert!(refused(64, vec![big]).contains("body_bytes"), "sizes have a limit");
    let mut readers = demo();
    readers.reads = vec![crate::Read { layers: 5_000, what: crate::Reads::All }];
    assert!(refused(64, vec![readers]).contains("reads = 5000: must be at most 4096"));
    let mut open = Group::state("open", 4, vec![0]);
    let rows = crate::StateRows::RECURRENT;
    let wide = crate::OpenRows { modulus: 64, row_bytes: u32::MAX };
    open.state = Some(crate::StateRows { open: Some(wide), ..rows });
    assert!(refused(64, vec![open]).contains("open rows"));
    let huge = Group::entries("huge", u32::MAX, vec![0]);
    assert!(refused(65_536, vec![huge]).contains("record"));
}

#[test]
fn canonical_tells_bytes_apart() {
    let base = || Layout::new("demo", 64, vec![demo()]).unwrap();
    let with = |change: &dyn Fn(&mut Group)| {
        let mut group = demo();
        change(&mut group);
        Layout::new("demo", 64, vec![group]).unwrap().canonical()
    };
    let others = [
        Layout::new("demo", 128, vec![demo()]).unwrap().canonical(),
        Layout::with_form("demo", "vllm", 64, vec![demo()]).unwrap().canonical(),
        base().with_split(true).canonical(),
        with(&|g| g.kind = Kind::Window(64)),
        with(&|g| g.layers = vec![0, 1, 2, 5]),
        with(&|g| g.ratio = 2),
        with(&|g| g.page.planes = vec![128, 64]),
        with(&|g| g.page.format = "other scale rule".into()),
        with(&|g| g.page.align = 512),
        with(&|g| g.page.page_entries = 32),
        with(&|g| g.shard = Shard::Heads(4)),
        with(&|g| g.draft = true),
    ];
    let distinct: std::collections::HashSet<_> = others.iter().collect();
    assert_eq!(distinct.len(), others.len());
    assert!(!others.contains(&base().canonical()));
    // names and what only accounting reads do not change the bytes
    let renamed =
        Layout::new("else", 64, vec![Group { name: "kv".into(), elements: 96, ..demo() }]);
    assert_eq!(renamed.unwrap().canonical(), base().canonical());
}

/// The largest objects at the most tokens: sums stay inside 64 bits.
#[test]
fn extremes_do_not_overflow() {
    use crate::account::{Basis, WindowRows};
    let big = 1u32 << 24;
    let groups = vec![
        Group::entries("entries", big, (0..4_096).collect()),
        Group::window("window", big, (0..4_096).collect(), u32::MAX),
        Group::state("state", big, (0..4_096).collect()),
    ];
    let layout = Layout::new("extreme", 1, groups).unwrap();
    assert_eq!(layout.body_bytes(), 1 << 36);
    let n = crate::MAX_TOKENS;
    for basis in [Basis::Logical, Basis::Padded] {
        assert_eq!(layout.entry_bytes(n, basis), 1 << 63);
        assert_eq!(layout.window_bytes_at(n, basis, WindowRows::Held), 1 << 63);
        assert_eq!(layout.state_bytes(n, basis), 1 << 36);
    }
    assert_eq!(layout.read_bytes(n / 2), 1 << 63);
}

/// No encoding is a prefix of another, over all built-in forms: the encoding delimits itself.
#[test]
fn canonical_is_self_delimiting() {
    let mut seen: HashMap<Vec<u8>, String> = HashMap::new();
    for architecture in Registry::built_in().architectures() {
        for (form, _) in architecture.forms() {
            let layout = architecture.layout(Some(form), true).unwrap();
            seen.insert(layout.canonical(), format!("{} {form}", architecture.name));
        }
    }
    let mut sorted: Vec<_> = seen.keys().collect();
    sorted.sort();
    for pair in sorted.windows(2) {
        assert!(!pair[1].starts_with(pair[0]), "{} and {}", seen[pair[0]], seen[pair[1]]);
    }
}

/// Frozen: the layout id of stored data is a hash of these bytes.
#[test]
fn canonical_golden() {
    let group = demo().with_page(PageShape { align: 512, ..PageShape::packed("bf16", 192) });
    let bytes = Layout::with_form("demo", "f", 64, vec![group]).unwrap().canonical();
    let numbers = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let mut expected = b"kvlayout".to_vec();
    expected.extend(numbers(&[1, 1])); // version, length of the form
    expected.extend(b"f");
    expected.extend(numbers(&[64, 0, 1])); // block, split, groups
    expected.extend(numbers(&[0, 4, 0, 1, 2, 3, 1, 4])); // kind, layers, ratio, length of the format
    expected.extend(b"bf16");
    expected.extend(numbers(&[1, 192, 64, 512, 0, 0, 0])); // planes, page, align, shard, draft, state
    assert_eq!(bytes, expected);
}
