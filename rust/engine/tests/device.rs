//! What each device promises, the same tests for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::host::{Arena, ArenaKind, Buf};
use kvstore_engine::io::{
    Completion, Device, FaultDevice, FaultDisk, FaultPlan, File, Grown, IoErrorKind, Op,
    OpenOptions, PsyncDevice,
};

const EXTENT: u32 = 1 << 20;
const UNIT: u32 = 4096;

fn arena() -> Arc<Arena> {
    Arena::new(ArenaKind::Private, 4 * EXTENT as usize, EXTENT as usize).unwrap()
}

fn buf(page: u32, pages: u32) -> Buf {
    Buf { extent: 0, offset: page * UNIT, len: pages * UNIT }
}

fn fill(arena: &Arena, buf: Buf, seed: u8) {
    // SAFETY: no operation on this buffer is in flight.
    let bytes = unsafe { arena.bytes_mut(buf) };
    bytes.iter_mut().zip((seed..=u8::MAX).chain(0..seed).cycle()).for_each(|(to, from)| *to = from);
}

fn bytes(arena: &Arena, buf: Buf) -> Vec<u8> {
    // SAFETY: no operation on this buffer is in flight.
    unsafe { arena.bytes(buf) }.to_vec()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

/// Submits all and waits for all; results by token.
fn run(device: &dyn Device, ops: &[Op]) -> BTreeMap<u64, Result<(), IoErrorKind>> {
    let (mut rest, mut done) = (ops, Vec::new());
    while done.len() < ops.len() {
        rest = &rest[device.submit(rest)..];
        assert!(device.complete(&mut done, soon()) > 0, "no completion in 30 s");
    }
    assert_eq!(device.in_flight(), 0);
    done.into_iter()
        .map(|Completion { token, result }| (token, result.map_err(|e| e.kind)))
        .collect()
}

fn each_device(test: impl Fn(&dyn Device, &Arena)) {
    let dir = tempfile::tempdir().unwrap();
    for direct in [true, false] {
        let arena = arena();
        let options = OpenOptions { direct, ..OpenOptions::default() };
        let path = dir.path().join(if direct { "direct" } else { "buffered" });
        test(&PsyncDevice::open(&path, Arc::clone(&arena), &options).unwrap(), &arena);
    }
    for reorder in [false, true] {
        let arena = arena();
        let plan = FaultPlan { reorder, ..FaultPlan::default() };
        test(&FaultDevice::new(FaultDisk::new(), Arc::clone(&arena), plan), &arena);
    }
}

#[test]
fn what_was_written_is_read() {
    each_device(|device, arena| {
        for file in File::ALL {
            assert_eq!(device.grow(file, 64 * u64::from(UNIT)).unwrap(), Grown::Allocated);
        }
        let mut writes = Vec::new();
        for page in 0..32 {
            fill(arena, buf(page, 1), u8::try_from(page).unwrap());
            let file = File::ALL[page as usize % 6];
            writes.push(Op::write(page.into(), file, u64::from(page * 2 * UNIT), buf(page, 1)));
        }
        assert!(run(device, &writes).values().all(|result| result.is_ok()));
        let syncs: Vec<Op> =
            (0..).zip(File::ALL).map(|(token, file)| Op::sync(token, file)).collect();
        assert!(run(device, &syncs).values().all(|result| result.is_ok()));

        let reads: Vec<Op> = writes
            .iter()
            .map(|write| {
                let target = Buf { extent: 2, ..write.buf };
                Op::read(write.token, write.file, write.offset, target)
            })
            .collect();
        assert!(run(device, &reads).values().all(|result| result.is_ok()));
        for read in reads {
            let wrote = Buf { extent: 0, ..read.buf };
            assert_eq!(bytes(arena, read.buf), bytes(arena, wrote), "{read:?}");
        }
    });
}

#[test]
fn the_queue_is_bounded_and_never_waits() {
    let dir = tempfile::tempdir().unwrap();
    let arena = arena();
    let options = OpenOptions { queue: 8, threads: 2, ..OpenOptions::default() };
    let psync = PsyncDevice::open(dir.path(), Arc::clone(&arena), &options).unwrap();
    let plan = FaultPlan { capacity: 8, ..FaultPlan::default() };
    let fault = FaultDevice::new(FaultDisk::new(), arena, plan);
    for device in [&psync as &dyn Device, &fault] {
        assert_eq!(device.capacity(), 8);
        device.grow(File::Data, 1 << 20).unwrap();
        let ops: Vec<Op> =
            (0..20).map(|page| Op::write(page, File::Data, page * 4096, buf(0, 1))).collect();
        assert_eq!(device.submit(&ops), 8);
        assert_eq!(device.submit(&ops[8..]), 0, "completions that nobody took count as well");
        assert_eq!(device.in_flight(), 8);
        let mut done = Vec::new();
        while done.len() < 8 {
            assert!(device.complete(&mut done, soon()) > 0);
        }
        assert_eq!(run(device, &ops[8..]).len(), 12);
    }
}

#[test]
fn the_end_of_a_file_is_an_error() {
    each_device(|device, _| {
        device.grow(File::Data, 3 * u64::from(UNIT)).unwrap();
        let inside = Op::read(1, File::Data, u64::from(2 * UNIT), buf(0, 1));
        let across = Op::read(2, File::Data, u64::from(2 * UNIT), buf(1, 2));
        let behind = Op::read(3, File::Data, u64::from(8 * UNIT), buf(3, 1));
        let results = run(device, &[inside, across, behind]);
        assert_eq!(results[&1], Ok(()));
        assert_eq!(results[&2], Err(IoErrorKind::Eof));
        assert_eq!(results[&3], Err(IoErrorKind::Eof));
        let mut byte = [0; 2];
        let error = device.read_at(File::Data, u64::from(3 * UNIT) - 1, &mut byte).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn operations_on_direct_files_are_whole_units() {
    each_device(|device, _| {
        device.grow(File::Data, 1 << 20).unwrap();
        device.grow(File::Directory, 1 << 20).unwrap();
        let short = Buf { extent: 0, offset: 0, len: 100 };
        let results = run(
            device,
            &[
                Op::write(1, File::Data, 0, short),
                Op::read(2, File::Data, 512, buf(0, 1)),
                Op::write(3, File::Data, 0, Buf { extent: 0, offset: 64, len: UNIT }),
                Op::write(4, File::Directory, 10, short),
            ],
        );
        let misaligned = Err(IoErrorKind::Misaligned);
        assert_eq!(
            [results[&1], results[&2], results[&3], results[&4]],
            [misaligned, misaligned, misaligned, Ok(())]
        );
    });
}

#[test]
fn metadata_has_any_place_and_length() {
    each_device(|device, arena| {
        for file in [File::Superblock, File::Table] {
            device.grow(file, 3 << 20).unwrap();
            fill(arena, buf(0, 2), 1);
            assert_eq!(run(device, &[Op::write(0, file, 4096, buf(0, 2))])[&0], Ok(()));

            let long: Vec<u8> = (0..(2 << 20) + 777).map(|at: u32| at.to_le_bytes()[1]).collect();
            device.write_at(file, 4096 + 100, b"around").unwrap();
            device.write_at(file, 12289, &long).unwrap();
            let mut read = vec![0; long.len()];
            device.read_at(file, 12289, &mut read).unwrap();
            assert!(read == long);

            let mut expected = bytes(arena, buf(0, 2));
            expected[100..106].copy_from_slice(b"around");
            assert_eq!(run(device, &[Op::read(0, file, 4096, buf(2, 2))])[&0], Ok(()));
            assert_eq!(bytes(arena, buf(2, 2)), expected);
            device.sync(file).unwrap();
            assert_eq!(device.len(file).unwrap(), 3 << 20);
        }
    });
}

#[test]
fn files_grow_and_shrink() {
    each_device(|device, _| {
        assert_eq!(device.len(File::Table).unwrap(), 0);
        device.grow(File::Table, 8192).unwrap();
        device.write_at(File::Table, 0, &[1; 8192]).unwrap();
        device.grow(File::Table, 4096).unwrap();
        assert_eq!(device.len(File::Table).unwrap(), 8192, "growing never shrinks");
        device.truncate(File::Table, 16384).unwrap();
        assert_eq!(device.len(File::Table).unwrap(), 8192, "truncating never grows");
        device.truncate(File::Table, 4096).unwrap();
        device.grow(File::Table, 8192).unwrap();
        let mut bytes = vec![9; 8192];
        device.read_at(File::Table, 0, &mut bytes).unwrap();
        assert_eq!((&bytes[..4096], &bytes[4096..]), (&[1; 4096][..], &[0; 4096][..]));
        assert_eq!(device.path_in_use().allocation, "allocated");
    });
}

#[test]
fn waking_ends_a_wait_without_completions() {
    each_device(|device, _| {
        let mut done = Vec::new();
        device.wake();
        assert_eq!(device.complete(&mut done, soon()), 0);
        std::thread::scope(|scope| {
            let reaper = scope.spawn(|| device.complete(&mut Vec::new(), soon()));
            device.wake();
            assert_eq!(reaper.join().unwrap(), 0);
        });
        assert_eq!(device.complete(&mut done, Instant::now()), 0);
    });
}

#[test]
fn a_closed_device_answers_closed() {
    each_device(|device, _| {
        device.grow(File::Data, 1 << 20).unwrap();
        let write = |token| Op::write(token, File::Data, 0, buf(0, 1));
        assert_eq!(device.submit(&[write(1), write(2)]), 2);
        assert!(device.close(soon()));
        assert!(device.close(soon()));
        assert_eq!(device.submit(&[write(3)]), 1);
        let mut done = Vec::new();
        while done.len() < 3 {
            assert!(device.complete(&mut done, soon()) > 0);
        }
        let result =
            |token| done.iter().find(|one| one.token == token).unwrap().result.map_err(|e| e.kind);
        assert_eq!([result(1), result(2)], [Ok(()), Ok(())]);
        assert_eq!(result(3), Err(IoErrorKind::Closed));
        assert_eq!(device.in_flight(), 0);
    });
}

#[test]
fn many_threads_submit_and_each_operation_ends_once() {
    let dir = tempfile::tempdir().unwrap();
    let arena = arena();
    let device =
        PsyncDevice::open(dir.path(), Arc::clone(&arena), &OpenOptions::default()).unwrap();
    device.grow(File::Data, 4 << 20).unwrap();
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..200u32 {
                    let page = thread * 8 + round % 8;
                    let token = u64::from(thread << 16 | round);
                    let offset = u64::from(page) * u64::from(UNIT);
                    let op = match round % 3 {
                        0 => Op::read(token, File::Data, offset, buf(page, 1)),
                        1 => Op::write(token, File::Data, offset, buf(page + 64, 1)),
                        _ => Op::sync(token, File::Superblock),
                    };
                    while device.submit(&[op]) == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        while done.len() < 800 {
            assert!(device.complete(&mut done, soon()) > 0);
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    done.sort_by_key(|one| one.token);
    done.dedup_by_key(|one| one.token);
    assert_eq!((done.len(), device.in_flight()), (800, 0));
}
