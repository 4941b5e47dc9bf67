//! Plans of the known architectures, policies, and the replayed chain.

use std::cell::RefCell;
use std::collections::HashSet;

use super::replayed::{longest, takes_mark};
use super::*;
use crate::Layout;
use crate::registry::Registry;

fn named(name: &str) -> Layout {
    Registry::built_in().find(name).unwrap().layout(None, false).unwrap()
}

fn have<'a>(
    bodies: u32,
    window: &'a dyn Fn(u32) -> bool,
    checkpoint: &'a dyn Fn(u32) -> bool,
) -> Have<'a> {
    Have { bodies, window, checkpoint }
}

fn yes(_: u32) -> bool {
    true
}

fn no(_: u32) -> bool {
    false
}

#[test]
fn one_token_is_left() {
    let v3 = named("deepseek-v3");
    for (n, usable) in [(0, 0), (1, 0), (64, 0), (65, 64), (128, 64), (129, 128), (1000, 960)] {
        let plan = plan(&v3, n, &have(100, &no, &no), None, false);
        assert_eq!((plan.usable, plan.replay_start), (usable, usable), "{n}");
        assert_eq!(plan.recompute_tokens, n - usable);
        assert_eq!(plan.matched, n.min(6400));
        let mode = if usable == 0 { Mode::Nothing } else { Mode::Plain };
        assert_eq!(plan.mode, mode);
    }
}

#[test]
fn exact_replay_lengths() {
    for (name, tokens) in [
        ("deepseek-v4-flash", 5_504),
        ("deepseek-v4-pro", 7_808),
        ("deepseek-v4.1-flash", 5_120),
        ("deepseek-v3", 0),
    ] {
        assert_eq!(named(name).exact_replay_tokens(), Some(tokens), "{name}");
    }
    assert_eq!(named("deepseek-v4.1-flash").replay_tokens_below(20), Some(2_560));
    assert_eq!(named("qwen3-next-80b").exact_replay_tokens(), None, "recurrent");
    // SGLang's page-aligned form: one page, then a window per further layer, rounded up to pages
    for (name, tokens) in [("deepseek-v4-flash", 5_632), ("deepseek-v4-pro", 7_936)] {
        let layout = Registry::built_in().find(name).unwrap().layout(Some("sglang:fp8"), false);
        let layout = layout.unwrap();
        let further = (layout.model_layers() - 1) * layout.max_window();
        let page = layout.block_tokens();
        assert_eq!((page + further).next_multiple_of(page), tokens, "{name}");
    }
}

#[test]
fn v4_needs_window_and_checkpoint_at_one_point() {
    let flash = named("deepseek-v4-flash");
    let n = 100 * 128 + 5;
    // checkpoints at the ends of blocks 31 and 63, windows of blocks 63 and 99
    let window = |b: u32| b == 63 || b == 99;
    let checkpoint = |b: u32| b == 31 || b == 63;
    let stored = plan(&flash, n, &have(100, &window, &checkpoint), None, false);
    assert_eq!(stored.matched, 12_800);
    // replaying 5,504 tokens over stored entries starts later than block 64 does
    assert_eq!(stored.mode, Mode::Checkpoint);
    assert_eq!((stored.usable, stored.replay_start), (8_192, 8_192));
    assert_eq!((stored.windows.clone(), stored.checkpoint), (63..64, Some(8_192)));
    assert_eq!(stored.read_bytes, 64 * 449_824 + 3_214_336 + 430_080);
    let replay = plan(&flash, n, &have(100, &no, &no), None, false);
    assert_eq!((replay.mode, replay.usable), (Mode::ExactReplay, 12_800));
    assert_eq!(replay.replay_start, 12_800 - 5_504);
    assert_eq!(replay.recompute_layer_tokens, 43 * u64::from(5 + 5_504u32));
}

#[test]
fn v4_rebuilds_a_lost_checkpoint_from_the_window_before() {
    let flash = named("deepseek-v4-flash");
    let plan = plan(&flash, 12_801, &have(100, &yes, &no), None, false);
    assert_eq!((plan.mode, plan.usable), (Mode::ExactReplay, 12_800));
    assert_eq!((plan.replay_start, plan.windows), (12_672, 98..99));
}

#[test]
fn v41_replays_its_window() {
    let v41 = named("deepseek-v4.1-flash");
    let nothing = have(100, &no, &no);
    let bounded = plan(&v41, 12_806, &nothing, None, true);
    assert_eq!((bounded.mode, bounded.usable), (Mode::BoundedReplay, 12_800));
    assert_eq!((bounded.replay_start, bounded.extra_ids), (12_672, 3));
    assert_eq!(bounded.recompute_tokens, 134);
    assert_eq!(bounded.recompute_layer_tokens, 21 * 134 + 19 * 128);
    assert_eq!(bounded.read_bytes, 100 * 113_920);
    let exact = plan(&v41, 12_806, &nothing, None, false);
    assert_eq!((exact.mode, exact.replay_start), (Mode::ExactReplay, 12_800 - 5_120));
    let windows = plan(&v41, 12_806, &have(100, &yes, &no), None, true);
    assert_eq!((windows.mode, windows.usable), (Mode::Plain, 12_800));
    // hits of 128 tokens or fewer are not adopted: all would be recomputed
    assert_eq!(plan(&v41, 200, &have(1, &no, &no), None, true).mode, Mode::Nothing);
}

#[test]
fn recurrent_state_needs_its_checkpoint() {
    let next = named("qwen3-next-80b");
    let checkpoint = |b: u32| b == 9;
    let plan = plan(&next, 2_000, &have(30, &no, &checkpoint), None, true);
    assert_eq!((plan.mode, plan.usable, plan.checkpoint), (Mode::Checkpoint, 640, Some(640)));
    assert_eq!(plan.matched, 1_920);
    assert_eq!(super::plan(&next, 2_000, &have(30, &no, &no), None, true).mode, Mode::Nothing);
}

#[test]
fn long_windows_need_several_blocks() {
    let gemma = named("gemma-3-27b");
    let hole = |b: u32| b != 20;
    // resuming at N needs the windows of the last 1,023 tokens: 16 blocks of 64
    let plan = plan(&gemma, 64 * 40 + 1, &have(40, &hole, &no), None, false);
    assert_eq!((plan.usable, plan.windows), (64 * 40, 24..40));
    let hole = |b: u32| b != 30;
    let plan = super::plan(&gemma, 64 * 40 + 1, &have(40, &hole, &no), None, false);
    assert_eq!((plan.usable, plan.windows), (64 * 30, 14..30));
}

#[test]
fn window_only_models_have_no_bodies() {
    let mistral = named("mistral-7b-v0.1");
    assert_eq!(mistral.body_bytes(), 0);
    let plan = plan(&mistral, 8_193, &have(0, &yes, &no), None, false);
    assert_eq!((plan.usable, plan.bodies, plan.windows), (8_192, 0..0, 64..128));
}

#[test]
fn costs_choose_among_modes() {
    let flash = named("deepseek-v4-flash");
    let checkpoint = |b: u32| b == 50;
    let stored = have(100, &yes, &checkpoint);
    let cheap_reads = Costs { per_token: 1.0, per_byte: 1e-12 };
    let dear_reads = Costs { per_token: 1.0, per_byte: 1.0 };
    let read = plan(&flash, 12_801, &stored, Some(cheap_reads), false);
    assert_eq!(read.mode, Mode::ExactReplay);
    let compute = plan(&flash, 12_801, &stored, Some(dear_reads), false);
    assert_eq!((compute.mode, compute.read_bytes), (Mode::Nothing, 0));
    assert_eq!(compute.cost, Some(12_801.0));
}

#[test]
fn windows_are_asked_for_once() {
    let gemma = named("gemma-3-27b");
    let asked = RefCell::new(Vec::new());
    let sparse = |b: u32| {
        asked.borrow_mut().push(b);
        !b.is_multiple_of(15)
    };
    let plan = plan(&gemma, 64 * 800 + 1, &have(800, &sparse, &no), None, false);
    // runs of 14 windows carry no resume point, and an exact replay would be longer than the prompt
    assert_eq!(plan.usable, 0);
    let asked = asked.into_inner();
    let once: HashSet<u32> = asked.iter().copied().collect();
    assert_eq!(once.len(), asked.len());
}

#[test]
fn policies_keep_points() {
    let flash = named("deepseek-v4-flash");
    let kept = keep(&flash, Policy::ENDS, 0..10_000, 9_000);
    assert_eq!(kept.points, [8_960, 9_984]);
    assert_eq!(kept.checkpoints, kept.points);
    assert_eq!(kept.windows, [69, 77]);
    let never = keep(&flash, Policy::NEVER, 0..10_000, 9_000);
    assert_eq!(never, Kept::default());
    let periodic = keep(&flash, Policy::every(1_000), 4_096..10_000, 9_000);
    assert_eq!(periodic.points, [4_992, 5_888, 6_912, 7_936, 8_960, 9_984]);
    let all = keep(&flash, Policy { windows: Windows::All, ..Policy::ENDS }, 130..1_000, 1_000);
    assert_eq!(all.windows, [2, 3, 4, 5, 6]);
    let gemma = keep(&named("gemma-3-27b"), Policy::ENDS, 0..2_048, 2_048);
    assert_eq!((gemma.windows, gemma.checkpoints), ((16..32).collect(), vec![]));
    let v3 = keep(&named("deepseek-v3"), Policy::ENDS, 0..2_048, 2_048);
    assert_eq!((v3.windows.len(), v3.checkpoints.len()), (0, 0));
}

/// What a policy keeps is what the planner resumes from.
#[test]
fn kept_points_are_resume_points() {
    for name in ["deepseek-v4-flash", "gemma-3-27b", "qwen3-next-80b", "deepseek-v4.1-flash"] {
        let layout = named(name);
        let kept = keep(&layout, Policy::every(4_096), 0..20_000, 18_000);
        let window = |b: u32| kept.windows.contains(&b);
        let checkpoint = |b: u32| kept.checkpoints.contains(&((b + 1) * layout.block_tokens()));
        for &point in &kept.points {
            let stored = have(point / layout.block_tokens(), &window, &checkpoint);
            let plan = plan(&layout, point + 1, &stored, None, false);
            assert_eq!((plan.usable, plan.recompute_tokens), (point, 1), "{name}");
        }
    }
}

/// A store of V4.1 blocks: (first replayed block, or none, and the conversation's block).
#[derive(Default)]
struct Chains(HashSet<(Option<u32>, u32)>);

impl Chains {
    fn exact(&self) -> u32 {
        (0..).find(|&b| !self.0.contains(&(None, b))).unwrap_or(0)
    }

    fn turn(
        &mut self,
        layout: &Layout,
        prompt: u32,
        output: u32,
        approximate: bool,
    ) -> (u32, bool) {
        let block = layout.block_tokens();
        let limit = prompt / block;
        let exact = self.exact().min(limit);
        let is_there = |mark, b| self.0.contains(&(Some(mark), b));
        let chain = if approximate {
            longest(exact, limit, &is_there)
        } else {
            replayed::Chain { blocks: exact, mark: None }
        };
        let plan = plan(layout, prompt, &have(chain.blocks, &no, &no), None, approximate);
        let first = plan.usable / block;
        let parent_is_replayed = chain.mark.is_some_and(|mark| mark < first);
        let replayed = plan.mode == Mode::BoundedReplay;
        let mark = if takes_mark(replayed, parent_is_replayed) {
            Some(first)
        } else if parent_is_replayed {
            chain.mark
        } else {
            None
        };
        let end = (prompt + output) / block;
        self.0.extend((first..end).map(|b| (mark, b)));
        (plan.usable, mark.is_some())
    }
}

#[test]
fn turn_k_hits_all_of_turn_k_minus_1() {
    let v41 = named("deepseek-v4.1-flash");
    let mut store = Chains::default();
    let (mut length, mut stored) = (0u32, 0u32);
    for turn in 0..20 {
        let prompt = length + 700 + 37 * turn;
        let (usable, marked) = store.turn(&v41, prompt, 411, true);
        assert_eq!(usable, stored / 128 * 128, "turn {turn}");
        assert_eq!(marked, turn > 0, "one replay marks the chain for good");
        stored = prompt + 411;
        length = stored;
    }
    let marks: HashSet<_> = store.0.iter().map(|(mark, _)| mark).collect();
    assert_eq!(marks.len(), 2, "exact blocks, and one replayed chain");
    // exact callers never see a replayed block
    let (usable, _) = store.turn(&v41, length, 0, false);
    assert_eq!(usable, 0, "turn 0 alone is shorter than an exact replay");
}

#[test]
fn longest_chain() {
    let none = |_: u32, _: u32| false;
    assert_eq!(longest(5, 9, &none), replayed::Chain { blocks: 5, mark: None });
    let two = |mark: u32, block: u32| (mark == 2 && block < 7) || (mark == 4 && block < 8);
    assert_eq!(longest(5, 9, &two), replayed::Chain { blocks: 8, mark: Some(4) });
    assert_eq!(longest(3, 9, &two), replayed::Chain { blocks: 7, mark: Some(2) });
    assert_eq!(longest(5, 5, &two), replayed::Chain { blocks: 5, mark: None }, "exact wins");
}
