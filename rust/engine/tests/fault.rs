//! What the fault device does wrong, and what it still promises then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::host::{Arena, ArenaKind, Buf};
use kvstore_engine::io::{
    Device, Fault, FaultDevice, FaultDisk, FaultPlan, File, Grown, IoErrorKind, Op, OpKind, Rule,
};
use proptest::prelude::*;

const PAGE: usize = 4096;
const PAGES: usize = 16;

struct Rig {
    disk: Arc<FaultDisk>,
    arena: Arc<Arena>,
    device: FaultDevice,
}

fn rig(plan: FaultPlan) -> Rig {
    let disk = FaultDisk::new();
    let arena = Arena::new(ArenaKind::Private, 1 << 20, 1 << 20).unwrap();
    let device = FaultDevice::new(Arc::clone(&disk), Arc::clone(&arena), plan);
    device.grow(File::Data, (PAGES * PAGE) as u64).unwrap();
    Rig { disk, arena, device }
}

fn faulty(kind: OpKind, fault: Fault) -> Rig {
    rig(FaultPlan { rules: vec![Rule::once(File::Data, kind, fault)], ..FaultPlan::default() })
}

fn buf(page: usize) -> Buf {
    Buf { extent: 0, offset: u32::try_from(page * PAGE).unwrap(), len: 4096 }
}

impl Rig {
    /// An operation on one page, its bytes in the page of the arena with the same number.
    fn op(&self, kind: OpKind, page: usize, byte: u8) -> Op {
        // SAFETY: the test has no operation on this buffer in flight.
        unsafe { self.arena.bytes_mut(buf(page)) }.fill(byte);
        Op {
            token: page as u64,
            kind,
            file: File::Data,
            offset: (page * PAGE) as u64,
            buf: buf(page),
        }
    }

    fn bytes(&self, page: usize) -> Vec<u8> {
        // SAFETY: as above.
        unsafe { self.arena.bytes(buf(page)) }.to_vec()
    }

    fn on_disk(&self, page: usize) -> Vec<u8> {
        self.disk.contents(File::Data)[page * PAGE..(page + 1) * PAGE].to_vec()
    }

    /// Completions until nothing more comes, by token.
    fn drain(&self) -> BTreeMap<u64, Result<(), IoErrorKind>> {
        let mut done = Vec::new();
        while self.device.complete(&mut done, Instant::now()) > 0 {}
        done.into_iter().map(|one| (one.token, one.result.map_err(|error| error.kind))).collect()
    }

    fn run(&self, op: Op) -> Result<(), IoErrorKind> {
        assert_eq!(self.device.submit(&[op]), 1);
        self.drain()[&op.token]
    }
}

fn changed_bits(left: &[u8], right: &[u8]) -> u32 {
    left.iter().zip(right).map(|(left, right)| (left ^ right).count_ones()).sum()
}

#[test]
fn the_chosen_operation_fails_and_no_other() {
    let rule = Rule::once(File::Data, OpKind::Write, Fault::Errno(libc::EIO)).after(2);
    let rig = rig(FaultPlan { rules: vec![rule], reorder: false, ..FaultPlan::default() });
    let ops: Vec<Op> = (0..5).map(|page| rig.op(OpKind::Write, page, 1)).collect();
    rig.device.submit(&[Op::read(99, File::Data, 0, buf(9)), Op::sync(98, File::Data)]);
    rig.device.submit(&ops);
    let results = rig.drain();
    for (token, result) in results {
        let expected = if token == 2 { Err(IoErrorKind::Device(libc::EIO)) } else { Ok(()) };
        assert_eq!(result, expected, "{token}");
    }
    assert_eq!((rig.on_disk(1)[0], rig.on_disk(2)[0], rig.on_disk(3)[0]), (1, 0, 1));
}

#[test]
fn a_full_device_is_told_apart() {
    for errno in [libc::ENOSPC, libc::EDQUOT] {
        let rig = faulty(OpKind::Write, Fault::Errno(errno));
        assert_eq!(rig.run(rig.op(OpKind::Write, 0, 1)), Err(IoErrorKind::NoSpace));
    }
    let rig = rig(FaultPlan { space: 100 << 10, ..FaultPlan::default() });
    let error = rig.device.grow(File::Table, 40 << 10).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(rig.device.len(File::Table).unwrap(), 0);
    assert_eq!(rig.device.grow(File::Table, 36 << 10).unwrap(), Grown::Allocated);
}

#[test]
fn a_disk_that_cannot_set_space_aside_grows_sparse() {
    let rig = rig(FaultPlan { allocates: false, space: 0, ..FaultPlan::default() });
    assert_eq!(rig.device.grow(File::Table, 40 << 10).unwrap(), Grown::Sparse);
    assert_eq!(rig.device.path_in_use().allocation, "sparse");
}

#[test]
fn short_transfers_go_on() {
    for kind in [OpKind::Read, OpKind::Write] {
        let rig = faulty(kind, Fault::Short);
        rig.disk.overwrite(File::Data, 0, &[7; PAGE]);
        assert_eq!(rig.run(rig.op(kind, 0, 9)), Ok(()));
        let expected = if kind == OpKind::Read { 7 } else { 9 };
        assert_eq!(rig.bytes(0), [expected; PAGE]);
        assert_eq!(rig.on_disk(0), [expected; PAGE]);
    }
}

#[test]
fn one_bit_flips_on_the_way() {
    let reading = faulty(OpKind::Read, Fault::FlipBit);
    assert_eq!(reading.run(reading.op(OpKind::Read, 0, 9)), Ok(()));
    assert_eq!(changed_bits(&reading.bytes(0), &[0; PAGE]), 1);
    assert_eq!(changed_bits(&reading.on_disk(0), &[0; PAGE]), 0);

    let writing = faulty(OpKind::Write, Fault::FlipBit);
    assert_eq!(writing.run(writing.op(OpKind::Write, 0, 9)), Ok(()));
    assert_eq!(changed_bits(&writing.bytes(0), &[9; PAGE]), 0);
    assert_eq!(changed_bits(&writing.on_disk(0), &[9; PAGE]), 1);
}

#[test]
fn success_can_be_a_lie() {
    let lost = faulty(OpKind::Write, Fault::Lost);
    assert_eq!(lost.run(lost.op(OpKind::Write, 0, 9)), Ok(()));
    assert_eq!(lost.on_disk(0), [0; PAGE]);

    let partial = faulty(OpKind::Write, Fault::Partial);
    assert_eq!(partial.run(partial.op(OpKind::Write, 0, 9)), Ok(()));
    assert_eq!(changed_bits(&partial.on_disk(0)[PAGE / 2..], &[0; PAGE / 2]), 0);
    assert_eq!(partial.on_disk(0)[..PAGE / 2], [9; PAGE / 2]);

    let aside = faulty(OpKind::Write, Fault::Misdirect(-4096));
    assert_eq!(aside.run(aside.op(OpKind::Write, 3, 9)), Ok(()));
    assert_eq!((aside.on_disk(2), aside.on_disk(3)), (vec![9; PAGE], vec![0; PAGE]));

    let broken = faulty(OpKind::Write, Fault::Broken(libc::EIO));
    assert_eq!(broken.run(broken.op(OpKind::Write, 0, 9)), Err(IoErrorKind::Device(libc::EIO)));
    assert_eq!(broken.on_disk(0)[..PAGE / 2], [9; PAGE / 2]);
}

#[test]
fn a_drive_that_lies_about_a_sync_loses_what_it_promised() {
    let left = |lie: bool| {
        (0..32).filter(move |&seed| {
            let rig = rig(FaultPlan::default());
            if lie {
                rig.device.inject(Rule::always(File::Data, OpKind::Sync, Fault::Lost));
            }
            assert_eq!(rig.run(rig.op(OpKind::Write, 0, 9)), Ok(()));
            assert_eq!(rig.run(Op::sync(1, File::Data)), Ok(()));
            rig.disk.power_cut(seed);
            rig.on_disk(0) == [9; PAGE]
        })
    };
    assert_eq!(left(false).count(), 32);
    assert!(left(true).count() < 32);
}

#[test]
fn a_stuck_operation_waits_for_its_release() {
    let rig = faulty(OpKind::Write, Fault::Stuck);
    rig.device.submit(&[rig.op(OpKind::Write, 0, 9), rig.op(OpKind::Write, 1, 9)]);
    assert_eq!(rig.drain().into_keys().collect::<Vec<_>>(), [1]);
    assert_eq!(rig.device.in_flight(), 1);
    assert!(!rig.device.close(Instant::now() + Duration::from_millis(5)));
    assert_eq!(rig.on_disk(0), [0; PAGE]);
    rig.device.release();
    assert!(rig.device.close(Instant::now() + Duration::from_secs(30)));
    assert_eq!(rig.drain()[&0], Ok(()));
    assert_eq!(rig.on_disk(0), [9; PAGE]);
}

#[test]
fn synchronous_calls_fall_under_the_same_rules() {
    let rig = faulty(OpKind::Read, Fault::Errno(libc::EIO));
    let mut bytes = [0; 8];
    let error = rig.device.read_at(File::Data, 3, &mut bytes).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    rig.device.read_at(File::Data, 3, &mut bytes).unwrap();
    rig.device.inject(Rule::always(File::Data, OpKind::Sync, Fault::Errno(libc::EIO)));
    assert!(rig.device.sync(File::Data).is_err());
    rig.device.heal();
    rig.device.sync(File::Data).unwrap();
}

#[test]
fn a_killed_process_does_nothing_more() {
    let rig = rig(FaultPlan::default());
    rig.device.submit(&[rig.op(OpKind::Write, 0, 1)]);
    rig.disk.kill(1);
    assert_eq!(rig.drain(), BTreeMap::from([(0, Err(IoErrorKind::Closed))]));
    let before = rig.disk.contents(File::Data);
    assert_eq!(rig.run(rig.op(OpKind::Write, 1, 1)), Err(IoErrorKind::Closed));
    assert!(rig.device.write_at(File::Data, 0, b"ghost").is_err());
    assert!(rig.device.grow(File::Data, 1 << 20).is_err());
    assert!(rig.device.truncate(File::Data, 0).is_err());
    assert!(rig.device.sync(File::Data).is_err());
    assert_eq!(rig.disk.contents(File::Data), before);
    drop(FaultDevice::new(Arc::clone(&rig.disk), Arc::clone(&rig.arena), FaultPlan::default()));
}

#[test]
#[should_panic(expected = "another device uses the disk")]
fn a_disk_has_one_device() {
    let rig = rig(FaultPlan::default());
    FaultDevice::new(Arc::clone(&rig.disk), Arc::clone(&rig.arena), FaultPlan::default());
}

/// Order of completions and what a crash leaves, of 12 writes of which some have completed.
fn story(seed: u64, crash: fn(&FaultDisk, u64)) -> (Vec<u64>, Vec<u8>) {
    let rig = rig(FaultPlan { seed, ..FaultPlan::default() });
    let ops: Vec<Op> = (0..12).map(|page| rig.op(OpKind::Write, page, 1)).collect();
    rig.device.submit(&ops);
    let mut done = Vec::new();
    rig.device.complete(&mut done, Instant::now());
    crash(&rig.disk, seed);
    (done.into_iter().map(|one| one.token).collect(), rig.disk.contents(File::Data))
}

#[test]
fn a_seed_tells_the_whole_story() {
    for crash in [FaultDisk::kill, FaultDisk::power_cut] {
        let stories: Vec<_> = (0..8).map(|seed| story(seed, crash)).collect();
        assert!((0..8).zip(&stories).all(|(seed, first)| story(seed, crash) == *first));
        assert!(stories.iter().any(|story| story.0 != stories[0].0), "all in one order");
        assert!(stories.iter().any(|story| story.0.windows(2).any(|pair| pair[0] > pair[1])));
    }
}

proptest! {
    /// Versions of each page, one write at a time in flight per page. After a kill a completed
    /// write is there, of one in flight each sector is old or new; after a power cut a sector is
    /// any version since the last sync, and after a sync at least that one.
    #[test]
    fn crashes_leave_what_they_may(
        seed in any::<u64>(),
        power in any::<bool>(),
        steps in proptest::collection::vec(0..PAGES + 4, 1..80),
    ) {
        let rig = rig(FaultPlan { seed, ..FaultPlan::default() });
        // Per page: the least version that must be there, the last completed, the last submitted.
        let mut pages = [(0u8, 0u8, 0u8); PAGES];
        let mut done = Vec::new();
        for step in steps {
            if step < PAGES && pages[step].1 == pages[step].2 {
                pages[step].2 += 1;
                rig.device.submit(&[rig.op(OpKind::Write, step, pages[step].2)]);
            } else if step == PAGES {
                rig.device.sync(File::Data).unwrap();
                pages.iter_mut().for_each(|page| page.0 = page.1);
            } else {
                rig.device.complete(&mut done, Instant::now());
            }
            for one in done.drain(..) {
                prop_assert!(one.result.is_ok());
                let page = &mut pages[usize::try_from(one.token).unwrap()];
                page.1 = page.2;
            }
        }
        if power { rig.disk.power_cut(seed) } else { rig.disk.kill(seed) }
        let left = rig.disk.contents(File::Data);
        prop_assert_eq!(left.len(), PAGES * PAGE);
        for (content, (synced, completed, submitted)) in left.chunks(PAGE).zip(pages) {
            let least = if power { synced } else { completed };
            for sector in content.chunks(512) {
                prop_assert!(sector.iter().all(|&byte| byte == sector[0]), "torn inside a sector");
                prop_assert!((least..=submitted).contains(&sector[0]), "{} of {least}..={submitted}", sector[0]);
            }
        }
    }
}
