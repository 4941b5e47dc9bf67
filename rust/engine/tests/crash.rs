//! `kill -9` of a real process, again and again on one directory (bar: 1,000 cycles, no wrong
//! byte, no acknowledged `ssd` object lost).
//!
//! The child stores prompts from several threads and says over a pipe what was acknowledged. The
//! parent kills it at a random moment, opens the store and reads everything. `KVSTORE_CRASH_CYCLES`
//! sets the number of kills, `KVSTORE_SEED` the seed of a failed run.

#![allow(clippy::print_stderr, reason = "a seed, a count and the reason of a skip are for people")]

mod common;
mod support;

use kvstore_engine::identity::Extras;
use kvstore_engine::store::{Ack, Batch, Namespace, Options, Status, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::*;

/// Threads of the child.
const THREADS: u32 = 3;
/// Prompts that one thread of a child stores at most: so much fits without an eviction.
const PROMPTS: u32 = 60;
/// After so many kills the child begins with a clear, so that the store never fills.
const CLEAR_EVERY: u32 = 8;
/// Bytes per token and layer of the models: 8 KiB, 24 KiB and, in parts, 4.5 MiB a block.
const RECORDS: [u32; 3] = [64, 192, 36_864];

/// One prompt of the child: model, seed, blocks.
type Prompt = (usize, u32, u32);

fn small() -> Options {
    Options { disk_bytes: 256 * MIB, ..options() }
}

/// Seven segments and five classes: every put evicts and every change of model drains.
fn crowded() -> Options {
    Options { disk_bytes: 128 * MIB, room_wait: Duration::from_secs(5), ..options() }
}

fn models(store: &Store) -> [Namespace; 3] {
    [0, 1, 2].map(|m| namespace(store, &layout(RECORDS[m]), ["a", "b", "parts"][m]))
}

/// Chance by seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

// The child.

/// Says one line; whole lines, since the pipe takes a short write at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let line = format!("@ {line}\n");
    let _parent_has_gone = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

fn ack_of(number: u32) -> Ack {
    match number % 4 {
        0 => Ack::Host,
        3 => Ack::SsdFlush,
        _ => Ack::Ssd,
    }
}

/// Puts a prompt and says what was acknowledged at `ssd` or more.
fn store_prompt(models: &[Namespace; 3], (model, seed, blocks): Prompt, ack: Ack) {
    let batch: Arc<Batch> = put(&models[model], &prompt(seed, blocks), 0, ack);
    batch.wait(soon());
    let stored = batch
        .status()
        .iter()
        .take_while(|status| matches!(status, Status::Stored | Status::Exists))
        .count();
    if ack >= Ack::Ssd && stored > 0 {
        say(&format!("acked {model} {seed} {stored}"));
    }
}

/// `survive DIR CYCLE`: stores what fits, then waits for its end.
fn survivor(dir: &Path, cycle: u32) {
    let store = open(dir, &small());
    let models = models(&store);
    if cycle.is_multiple_of(CLEAR_EVERY) {
        for (model, ns) in models.iter().enumerate() {
            say(&format!("clearing {model}"));
            ns.clear(false).unwrap();
            say(&format!("cleared {model}"));
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let models = &models;
            scope.spawn(move || {
                for n in 0..PROMPTS {
                    let seed = (cycle * THREADS + thread) * PROMPTS + n;
                    let model = if thread == 0 && n == 7 { 2 } else { (n % 5 == 4).into() };
                    let blocks = if model == 2 { 1 } else { 1 + n % 4 };
                    store_prompt(models, (model, seed, blocks), ack_of(seed));
                }
            });
        }
    });
    report_losses(&store);
    std::thread::sleep(Duration::from_secs(60));
}

/// `crowd DIR CYCLE`: stores without end in a store that is always full; the mix of sizes changes
/// from child to child.
fn crowd(dir: &Path, cycle: u32) {
    let store = open(dir, &crowded());
    let models = models(&store);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (models, store) = (&models, &store);
            scope.spawn(move || {
                for n in 0.. {
                    let seed = (cycle * THREADS + thread) * 100_000 + n;
                    let model = match cycle % 3 {
                        0 => 0,
                        1 => 1,
                        _ => (n % 3) as usize,
                    };
                    let blocks = if model == 2 { 1 } else { 8 };
                    store_prompt(models, (model, seed, blocks), ack_of(seed));
                    report_losses(store);
                }
            });
        }
    });
}

/// Says how many objects left the disk tier so far.
fn report_losses(store: &Store) {
    let counters = store.stats().counters;
    let lost = counters.evicted_disk + counters.evicted + counters.failed_checks;
    say(&format!("lost {lost}"));
}

/// Does what a parent told this process to do; an ordinary run has nothing to do here.
#[test]
fn in_a_role() {
    let Some(role) = common::role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let (dir, cycle) = (Path::new(words[1]), words[2].parse().unwrap());
    match words[0] {
        "survive" => survivor(dir, cycle),
        "crowd" => crowd(dir, cycle),
        "flushes" => flushes(dir),
        other => panic!("no role {other}"),
    }
}

// The parent.

/// What the children have said.
#[derive(Default)]
struct Said {
    /// Blocks of each prompt that were acknowledged.
    acked: BTreeMap<(usize, u32), u32>,
    /// Models of which a clear had begun and was not reported as done.
    clearing: BTreeSet<usize>,
    /// Prompts of the last child alone.
    fresh: Vec<Prompt>,
    /// Objects that the last child had lost at its last report.
    lost: u64,
    lines: u64,
}

impl Said {
    fn hear(&mut self, line: &str) {
        // The harness begins a line with the name of its test.
        let Some((_, rest)) = line.split_once("@ ") else { return };
        let words: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        self.lines += 1;
        match words[0] {
            "acked" => {
                let prompt = (number(1) as usize, number(2), number(3));
                let blocks = self.acked.entry((prompt.0, prompt.1)).or_default();
                *blocks = prompt.2.max(*blocks);
                self.fresh.push(prompt);
            }
            "clearing" => {
                self.clearing.insert(number(1) as usize);
                self.acked.retain(|(model, _), _| *model != number(1) as usize);
            }
            "cleared" => {
                self.clearing.remove(&(number(1) as usize));
            }
            "lost" => self.lost = self.lost.max(words[1].parse().unwrap()),
            other => panic!("{other}: {line}"),
        }
    }
}

/// Runs a child, kills it after `life` and hears everything that it said.
fn run_child(role: &str, life: Duration, said: &mut Said) {
    said.fresh.clear();
    said.lost = 0;
    let mut child: Child =
        common::command(role).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    let heard = std::thread::spawn(move || {
        BufReader::new(out).split(b'\n').map_while(Result::ok).collect::<Vec<_>>()
    });
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let lines = heard.join().unwrap();
    for line in &lines {
        let line = String::from_utf8_lossy(line);
        assert!(!line.contains("panicked"), "{line}");
        said.hear(&line);
    }
}

fn cycles(default: u32) -> u32 {
    std::env::var("KVSTORE_CRASH_CYCLES").map_or(default, |n| n.parse().expect("a number"))
}

fn seed() -> u64 {
    let time = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("KVSTORE_SEED").map_or_else(|_| time(), |n| n.parse().unwrap());
    eprintln!("KVSTORE_SEED={seed}");
    seed
}

/// Blocks of a prompt that a match finds.
fn present(ns: &Namespace, seed: u32, blocks: u32) -> u32 {
    let keys = ns.keys(&prompt(seed, blocks), &Extras::none()).unwrap();
    let answers = ns.match_keys(&keys);
    use kvstore_engine::store::BlockAnswer::{Disk, Host};
    answers.iter().take_while(|answer| matches!(answer, Host | Disk)).count() as u32
}

/// Everything that recovery lists is whole, after nothing but a kill (INV-2).
fn assert_sound(store: &Store, cycle: u32) -> u64 {
    let recovered = store.recovered();
    assert_eq!(recovered.damaged, 0, "cycle {cycle}: {recovered:?}");
    let report = store.check(false, |_, _| ()).unwrap();
    assert_eq!(report.damaged, [], "cycle {cycle}: {recovered:?}");
    assert_eq!(report.objects, recovered.objects, "cycle {cycle}");
    report.objects
}

/// C8, B2-01, B2-16: after each of many kills all that was acknowledged as `ssd` is there, byte by
/// byte, and what was cleared is not.
#[test]
fn what_was_acknowledged_as_ssd_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed());
    let mut said = Said::default();
    let mut verified = 0;
    let cycles = cycles(100);
    for cycle in 0..cycles {
        let life = Duration::from_millis(30 + random.below(270));
        run_child(&format!("survive {} {cycle}", dir.path().display()), life, &mut said);
        assert_eq!(said.lost, 0, "the store is large enough to keep all");

        let store = open(dir.path(), &small());
        verified += assert_sound(&store, cycle);
        let models = models(&store);
        for (&(model, seed), &blocks) in &said.acked {
            if !said.clearing.contains(&model) {
                let found = present(&models[model], seed, blocks);
                assert_eq!(found, blocks, "cycle {cycle}: prompt {seed} of model {model}");
            }
        }
        for &(model, seed, blocks) in &said.fresh {
            let found = check(&models[model], &prompt(seed, blocks)) as u32;
            assert!(found == blocks || said.clearing.contains(&model), "cycle {cycle}: {seed}");
        }
        // A clear that was cut off has taken all or nothing; from here on it has taken all.
        for &model in &said.clearing {
            models[model].clear(false).unwrap();
        }
        said.clearing.clear();
        assert!(store.close());
    }
    eprintln!("{cycles} kills, {} lines heard, {verified} objects verified", said.lines);
    assert!(said.lines > u64::from(cycles), "the children did something");
}

/// C2, C8, INV-2: in a store that evicts and drains all the time a kill loses no more than the
/// child counted, and no index entry fails its check.
#[test]
fn a_crowded_store_loses_by_kill_9_only_what_it_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed());
    let mut said = Said::default();
    let mut evicted = 0;
    let cycles = cycles(100).div_ceil(2);
    for cycle in 0..cycles {
        let life = Duration::from_millis(50 + random.below(450));
        run_child(&format!("crowd {} {cycle}", dir.path().display()), life, &mut said);
        evicted += said.lost;
        let store = open(dir.path(), &crowded());
        assert_sound(&store, cycle);
        let models = models(&store);
        let (mut acked, mut missing) = (0, 0);
        for &(model, seed, blocks) in &said.fresh {
            acked += u64::from(blocks);
            missing += u64::from(blocks - present(&models[model], seed, blocks));
        }
        // What was evicted after the last report: a segment of the smallest objects at most, by
        // one drain, and what is evicted ahead for one put of each thread.
        let unreported = 16 * MIB / 8192 + 3 * 64;
        assert!(
            missing <= said.lost + unreported,
            "cycle {cycle}: {missing} of {acked} acknowledged blocks are gone, {} were counted",
            said.lost
        );
        for &(model, seed, blocks) in said.fresh.iter().rev().take(40) {
            let _ = check(&models[model], &prompt(seed, blocks));
        }
        assert!(store.close());
    }
    eprintln!("{cycles} kills, {evicted} objects evicted");
    assert!(evicted > 0, "the store was never full");
}

// A power cut of a real file system.

/// `flushes DIR 0`: puts with `ssd+flush` without end.
fn flushes(dir: &Path) {
    let store = open(dir, &small());
    let models = models(&store);
    for seed in 0.. {
        store_prompt(&models, ((seed % 2) as usize, seed, 2), Ack::SsdFlush);
    }
}

/// An ext4 in a file, mounted; unmounted by its name when dropped.
struct LoopMount {
    image: PathBuf,
    at: PathBuf,
}

fn sh(program: &str, args: &[&str]) -> Result<(), String> {
    let out = std::process::Command::new(program).args(args).output();
    let out = out.map_err(|error| format!("{program}: {error}"))?;
    let why = || format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr).trim());
    out.status.success().then_some(()).ok_or_else(why)
}

impl LoopMount {
    fn new(dir: &Path) -> Result<Self, String> {
        let (image, at) = (dir.join("image"), dir.join("mounted"));
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(512 * MIB).map_err(|error| error.to_string())?;
        std::fs::create_dir(&at).map_err(|error| error.to_string())?;
        sh("mkfs.ext4", &["-q", "-F", &image.display().to_string()])?;
        let this = Self { image, at };
        this.mount()?;
        Ok(this)
    }

    fn mount(&self) -> Result<(), String> {
        let (image, at) = (self.image.display().to_string(), self.at.display().to_string());
        sh("mount", &["-o", "loop", &image, &at])
    }

    fn unmount(&self) -> Result<(), String> {
        sh("umount", &[&self.at.display().to_string()])
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        let _not_mounted = self.unmount();
    }
}

/// The file system does nothing more from now on, as after a power cut: `xfs_io -x -c shutdown`.
fn cut_power(at: &Path) -> std::io::Result<()> {
    /// `FS_IOC_SHUTDOWN` of Linux's uapi/linux/fs.h, and its flag for "do not flush the journal".
    const SHUTDOWN: libc::Ioctl = 0x8004_587d;
    let no_log_flush: u32 = 2;
    let root = std::fs::File::open(at)?;
    // SAFETY: the call reads one u32 and keeps no pointer.
    match unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const no_log_flush) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// C8, B2-04: what was acknowledged as `ssd+flush` survives a power cut of a real file system.
#[test]
fn what_was_flushed_survives_a_power_cut_of_ext4() {
    let dir = tempfile::tempdir().unwrap();
    let mount = match LoopMount::new(dir.path()) {
        Ok(mount) => mount,
        Err(why) => return eprintln!("skipped: no loop-mounted ext4 here ({why})"),
    };
    let store_dir = mount.at.join("store");
    let mut said = Said::default();
    for cycle in 0..3 {
        let mut child = common::command(&format!("flushes {} {cycle}", store_dir.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
        let begun = Instant::now();
        while said.fresh.len() < 20 * (cycle + 1) && begun.elapsed() < Duration::from_secs(20) {
            let Some(Ok(line)) = lines.next() else { break };
            said.hear(&String::from_utf8_lossy(&line));
        }
        let outcome = cut_power(&mount.at);
        child.kill().unwrap();
        child.wait().unwrap();
        if let Err(why) = outcome {
            return eprintln!("skipped: the power cannot be cut here ({why})");
        }
        // What it said before the power went still counts; afterwards it got no acknowledgement.
        for line in lines.map_while(Result::ok) {
            said.hear(&String::from_utf8_lossy(&line));
        }
        mount.unmount().unwrap();
        mount.mount().unwrap();
        let store = open(&store_dir, &small());
        let models = models(&store);
        for (&(model, seed), &blocks) in &said.acked {
            let found = check(&models[model], &prompt(seed, blocks)) as u32;
            assert_eq!(found, blocks, "cycle {cycle}: prompt {seed} of model {model}");
        }
        assert!(store.close());
        drop(models);
        drop(store);
    }
    assert!(said.acked.len() >= 20, "the child did something");
}
