//! Plans executed on a symbolic model: every exact mode reproduces the state of a cold run.
//!
//! A value is a hash of all that went into it, so two runs agree exactly when every value was
//! computed from the same inputs. The models mix all kinds of layers: entries at several ratios,
//! pooling over the group before (CSA), owners shared between layers, windows, states of a few
//! tokens (convolutions) and recurrent ones.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kvstore_layout::resume::{Costs, Have, Mode, Plan, plan};
use kvstore_layout::{Group, Kind, Layout, Replay, StateRows};
use proptest::prelude::*;

const BLOCK: u32 = 8;

fn mix(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// What one layer attends to and keeps.
#[derive(Debug, Clone, Default)]
struct Layer {
    /// Owns entries, one per so many tokens; with `overlap` an entry pools the group before too.
    owns: Option<(u32, bool)>,
    /// Reads the entries of this owner (itself or a lower layer).
    reads: Option<usize>,
    window: Option<u32>,
    /// Keeps a state of the last so many inputs.
    span: Option<u32>,
    recurrent: bool,
}

/// All that a run holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Caches {
    /// (owner layer, entry).
    entries: BTreeMap<(usize, u32), u64>,
    /// (layer, token).
    rows: BTreeMap<(usize, u32), u64>,
    /// (layer, token): compressor rows.
    pooled: BTreeMap<(usize, u32), u64>,
    /// (layer, token): inputs that a short state is made of.
    inputs: BTreeMap<(usize, u32), u64>,
    /// Layer: recurrent state.
    recurrent: BTreeMap<usize, u64>,
    /// Token: output of the last layer.
    outputs: BTreeMap<u32, u64>,
}

/// Runs tokens `start..end` over what `caches` hold. Entries that end at or below `stored` are not
/// written again: they are the stored ones.
fn run(model: &[Layer], caches: &mut Caches, start: u32, end: u32, stored: u32) {
    for t in start..end {
        let mut x = mix(("token", t * 7 % 13, t));
        for (l, layer) in model.iter().enumerate() {
            let input = x;
            if let Some((ratio, overlap)) = layer.owns {
                caches.pooled.insert((l, t), mix(("pool", l, input)));
                if (t + 1).is_multiple_of(ratio) && t + 1 > stored {
                    let j = t / ratio;
                    let first = if overlap { (j * ratio).saturating_sub(ratio) } else { j * ratio };
                    let pooled: Vec<_> = (first..=t).map(|s| caches.pooled.get(&(l, s))).collect();
                    let entry = mix(("entry", l, pooled));
                    caches.entries.insert((l, j), entry);
                }
            }
            let mut seen: Vec<Option<u64>> = Vec::new();
            if let Some(owner) = layer.reads {
                let ratio = model[owner].owns.map_or(1, |(ratio, _)| ratio);
                seen.extend((0..(t + 1) / ratio).map(|j| caches.entries.get(&(owner, j)).copied()));
            }
            if let Some(w) = layer.window {
                caches.rows.insert((l, t), mix(("row", l, input)));
                let first = (t + 1).saturating_sub(w);
                seen.extend((first..=t).map(|s| caches.rows.get(&(l, s)).copied()));
            }
            if let Some(span) = layer.span {
                let first = t.saturating_sub(span);
                seen.extend((first..t).map(|s| caches.inputs.get(&(l, s)).copied()));
                caches.inputs.insert((l, t), input);
            }
            if layer.recurrent {
                let before = caches.recurrent.get(&l).copied();
                let now = mix(("state", l, before, input));
                caches.recurrent.insert(l, now);
                seen.push(Some(now));
            }
            x = mix(("out", l, input, seen));
        }
        caches.outputs.insert(t, x);
    }
}

fn layout(model: &[Layer], bounded: Option<u32>) -> Layout {
    let mut groups = Vec::new();
    for (l, layer) in (0u32..).zip(model) {
        let state = |name: &str, span, feeds_entries_only| {
            let mut group = Group::state(format!("{name}{l}"), 4, vec![l]);
            group.state = Some(StateRows { span, feeds_entries_only, ..StateRows::RECURRENT });
            group
        };
        if let Some((ratio, overlap)) = layer.owns {
            groups.push(Group::entries(format!("entries{l}"), 16, vec![l]).with_ratio(ratio));
            if overlap {
                groups.push(state("tail", Some(ratio), true));
            }
        }
        if let Some(w) = layer.window {
            groups.push(Group::window(format!("window{l}"), 8, vec![l], w));
        }
        if layer.span.is_some() {
            groups.push(state("short", layer.span, false));
        }
        if layer.recurrent {
            groups.push(state("recurrent", None, false));
        }
    }
    if groups.is_empty() {
        groups.push(Group::entries("entries", 16, vec![0]));
    }
    let model_layers = u32::try_from(model.len()).unwrap();
    let replay = Replay { model_layers, bounded, ..Replay::default() };
    Layout::new("symbolic", BLOCK, groups).unwrap().with_replay(replay)
}

/// What is restored from objects that a cold run stored: exactly the plan's bodies, windows and
/// checkpoint.
fn restore(model: &[Layer], cold: &Caches, plan: &Plan) -> Caches {
    let mut caches = Caches::default();
    for (&(l, j), &entry) in &cold.entries {
        let ratio = model[l].owns.map_or(1, |(ratio, _)| ratio);
        if (j + 1) * ratio <= plan.bodies.end * BLOCK {
            caches.entries.insert((l, j), entry);
        }
    }
    let in_windows = |t: u32| plan.windows.contains(&(t / BLOCK));
    caches.rows.extend(cold.rows.iter().filter(|&(&(_, t), _)| in_windows(t)));
    if let Some(n) = plan.checkpoint {
        let last = |t: u32, tokens: u32| t < n && t + tokens >= n;
        for (&(l, t), &value) in &cold.pooled {
            if model[l].owns.is_some_and(|(ratio, overlap)| overlap && last(t, ratio)) {
                caches.pooled.insert((l, t), value);
            }
        }
        for (&(l, t), &value) in &cold.inputs {
            if model[l].span.is_some_and(|span| last(t, span)) {
                caches.inputs.insert((l, t), value);
            }
        }
        let mut at_n = Caches::default();
        run(model, &mut at_n, 0, n, 0);
        caches.recurrent = at_n.recurrent;
    }
    caches
}

/// What a run must hold to go on as a cold one would: later outputs, entries, trailing rows and
/// states.
fn live(model: &[Layer], caches: &Caches, usable: u32, n: u32) -> Caches {
    let mut live = caches.clone();
    live.outputs.retain(|&t, _| t >= usable);
    live.rows.retain(|&(l, t), _| model[l].window.is_some_and(|w| t + w > n));
    live.inputs.retain(|&(l, t), _| model[l].span.is_some_and(|span| t + span >= n));
    live.pooled.retain(|&(l, t), _| {
        model[l].owns.is_some_and(|(ratio, overlap)| {
            let open = n / ratio * ratio;
            t >= if overlap { open.saturating_sub(ratio) } else { open }
        })
    });
    live
}

fn any_layer() -> impl Strategy<Value = Layer> {
    let owns =
        prop::sample::select(vec![(1, false), (2, false), (4, false), (4, true), (8, false)]);
    (
        prop::option::weighted(0.6, owns),
        any::<bool>(),
        prop::option::weighted(0.5, 2u32..20),
        prop::option::weighted(0.15, 1u32..6),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(owns, reads, window, span, recurrent)| Layer {
            owns,
            reads: reads.then_some(0),
            window,
            span,
            recurrent,
        })
}

/// Models of 1 to 4 layers; a layer that reads another's entries reads the nearest owner below.
fn any_model() -> impl Strategy<Value = Vec<Layer>> {
    prop::collection::vec(any_layer(), 1..5).prop_map(|mut model| {
        let mut owner = None;
        for (l, layer) in model.iter_mut().enumerate() {
            if layer.owns.is_some() {
                owner = Some(l);
            }
            layer.reads = if layer.owns.is_some() { Some(l) } else { layer.reads.and(owner) };
        }
        model
    })
}

#[derive(Debug, Clone)]
struct Stored {
    bodies: u32,
    windows: u32,
    checkpoints: u32,
}

fn any_stored() -> impl Strategy<Value = Stored> {
    (0u32..26, any::<u32>(), any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
        |(bodies, windows, checkpoints, all, none)| Stored {
            bodies,
            windows: if all { u32::MAX } else { windows },
            checkpoints: if none { 0 } else { checkpoints },
        },
    )
}

fn plan_of(
    layout: &Layout,
    n: u32,
    stored: &Stored,
    costs: Option<Costs>,
    approximate: bool,
) -> Plan {
    let have = Have {
        bodies: stored.bodies,
        window: &|b| b < 32 && stored.windows >> b & 1 == 1,
        checkpoint: &|b| b < 32 && stored.checkpoints >> b & 1 == 1,
    };
    plan(layout, n, &have, costs, approximate)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn exact_modes_reproduce_a_cold_run(model in any_model(), stored in any_stored(), n in 1u32..220) {
        let layout = layout(&model, None);
        let plan = plan_of(&layout, n, &stored, None, true);
        prop_assert_ne!(plan.mode, Mode::BoundedReplay);
        let mut cold = Caches::default();
        run(&model, &mut cold, 0, n, 0);
        let mut warm = restore(&model, &cold, &plan);
        run(&model, &mut warm, plan.replay_start, n, plan.usable);
        // and 40 tokens further
        let live_cold = |cold: &Caches, n| live(&model, cold, plan.usable, n);
        prop_assert_eq!(live_cold(&warm, n), live_cold(&cold, n), "{:?}", plan);
        run(&model, &mut cold, n, n + 40, 0);
        run(&model, &mut warm, n, n + 40, 0);
        prop_assert_eq!(live_cold(&warm, n + 40), live_cold(&cold, n + 40));
    }

    #[test]
    fn bounded_replay_keeps_what_is_stored_and_the_first_layer(
        w in 2u32..17, depth in 2usize..5, n in 60u32..220,
    ) {
        let layer = Layer { owns: Some((2, false)), window: Some(w), ..Layer::default() };
        let model: Vec<_> = (0..depth).map(|l| Layer { reads: Some(l), ..layer.clone() }).collect();
        let layout = layout(&model, Some(w));
        let stored = Stored { bodies: n / BLOCK, windows: 0, checkpoints: 0 };
        let plan = plan_of(&layout, n, &stored, None, true);
        prop_assert_eq!(plan.mode, Mode::BoundedReplay);
        prop_assert!(plan.replay_start + w <= plan.usable);
        let mut cold = Caches::default();
        run(&model, &mut cold, 0, n, 0);
        let mut warm = restore(&model, &cold, &plan);
        run(&model, &mut warm, plan.replay_start, n, plan.usable);
        for (&(l, j), entry) in &cold.entries {
            if l == 0 || (j + 1) * 2 <= plan.usable {
                prop_assert_eq!(warm.entries.get(&(l, j)), Some(entry));
            }
        }
        let exact = plan_of(&layout, n, &stored, None, false);
        prop_assert_ne!(exact.mode, Mode::BoundedReplay);
        prop_assert!(exact.recompute_tokens >= plan.recompute_tokens);
    }

    #[test]
    fn plans_are_sound(
        model in any_model(), stored in any_stored(), n in 0u32..260,
        costs in prop::option::of((0.0f64..2.0, 0.0f64..0.1)), approximate in any::<bool>(),
    ) {
        let layout = layout(&model, Some(8));
        let costs = costs.map(|(per_token, per_byte)| Costs { per_token, per_byte });
        let plan = plan_of(&layout, n, &stored, costs, approximate);
        prop_assert!(plan.usable <= n.saturating_sub(1));
        prop_assert!(plan.replay_start <= plan.usable && plan.usable <= plan.matched);
        prop_assert!(plan.usable.is_multiple_of(BLOCK));
        prop_assert_eq!(plan.recompute_tokens, n - plan.replay_start);
        prop_assert!(plan.bodies.end <= stored.bodies, "bodies are there");
        prop_assert!(plan.windows.clone().all(|b| stored.windows >> b & 1 == 1), "windows are there");
        if let Some(at) = plan.checkpoint {
            prop_assert_eq!(stored.checkpoints >> (at / BLOCK - 1) & 1, 1, "the checkpoint is there");
        }
        prop_assert_eq!(plan.cost.is_some(), costs.is_some());
        let bytes = u64::from(plan.bodies.end) * layout.body_bytes()
            + plan.windows.len() as u64 * layout.window_bytes()
            + plan.checkpoint.map_or(0, |_| layout.checkpoint_bytes());
        prop_assert_eq!(plan.read_bytes, bytes);
        if !approximate {
            prop_assert_ne!(plan.mode, Mode::BoundedReplay);
        }
    }

    #[test]
    fn more_stored_never_means_more_to_compute(
        model in any_model(), less in any_stored(), more in any_stored(), n in 0u32..260,
        per_byte in 0.0f64..0.1, approximate in any::<bool>(),
    ) {
        let layout = layout(&model, Some(8));
        let more = Stored {
            bodies: less.bodies.max(more.bodies),
            windows: less.windows | more.windows,
            checkpoints: less.checkpoints | more.checkpoints,
        };
        let [a, b] = [&less, &more].map(|stored| plan_of(&layout, n, stored, None, approximate));
        prop_assert!(b.recompute_tokens <= a.recompute_tokens);
        let costs = Some(Costs { per_token: 1.0, per_byte });
        let [a, b] = [&less, &more].map(|stored| plan_of(&layout, n, stored, costs, approximate));
        prop_assert!(b.cost <= a.cost, "{:?} {:?}", a, b);
    }
}

/// The kinds of the symbolic model's layers are those of the layout.
#[test]
fn the_model_has_all_kinds() {
    let layer = Layer {
        owns: Some((4, true)),
        reads: Some(0),
        window: Some(5),
        span: Some(2),
        recurrent: true,
    };
    let layout = layout(&[layer], None);
    let kinds: Vec<_> = layout.groups().iter().map(|g| g.kind).collect();
    assert_eq!(kinds, [Kind::Entries, Kind::State, Kind::Window(5), Kind::State, Kind::State]);
}
