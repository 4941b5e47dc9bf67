//! What has expired or was cleared is gone: at once, for reads and puts alike, and for good.

use std::time::Duration;

use kvstore_engine::Store;
use kvstore_engine::identity::Extras;
use kvstore_engine::io::File;
use kvstore_engine::io::OpKind;
use kvstore_engine::io::fault::{Fault, FaultDisk, FaultPlan, Rule};
use kvstore_engine::store::{
    Ack, BlockAnswer, MissReason, Namespace, NamespaceOptions, Options, PutOptions, Reason, Status,
};
use kvstore_index::Kind;

use crate::support::*;
use crate::tools::*;

const SHORT: Duration = Duration::from_secs(1);

fn put_for(ns: &Namespace, tokens: &[u32], ttl: Option<Duration>) -> Status {
    let keys = keys(ns, tokens);
    let data = payload(&keys[0], ns.layout().body_bytes() as usize);
    let put = PutOptions { ack: Ack::Ssd, ttl, ..PutOptions::default() };
    let batch = ns.put_objects(&[object(&keys, 0, Kind::Body, &data)], put);
    assert!(batch.wait(soon()));
    batch.status()[0]
}

/// Waits until a block with a short life is no hit any more.
fn wait_for_its_end(ns: &Namespace, tokens: &[u32]) {
    while blocks_of(ns, tokens) > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A put's time to live, or else the namespace's: an expired object is a miss with that reason, the
/// next put replaces it, and after a restart it is not there.
#[test]
fn an_expired_object_is_absent_for_reads_and_puts() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(32);
    let [short, long, by_namespace] = [1, 2, 3].map(|seed| prompt(seed, 1));
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout, "a");
    let hasty = NamespaceOptions { ttl: Some(SHORT), ..NamespaceOptions::default() };
    let hasty = store.namespace(layout.clone(), &description(&layout, "a"), b"", hasty).unwrap();
    assert_eq!(put_for(&ns, &short, Some(SHORT)), Status::Stored);
    assert_eq!(put_for(&ns, &long, None), Status::Stored);
    assert_eq!(put_for(&hasty, &by_namespace, None), Status::Stored);
    assert_eq!(check(&ns, &long), 1);
    wait_for_its_end(&ns, &short);
    wait_for_its_end(&ns, &by_namespace);
    let found = matched(&ns, &short);
    assert_eq!(found.blocks, [BlockAnswer::Miss(MissReason::Expired)]);
    assert_eq!(ns.lease_keys(&found.keys).1, Some(MissReason::Expired));
    assert_eq!(put_for(&ns, &short, None), Status::Stored, "the new bytes replace it");
    assert_eq!((check(&ns, &short), check(&ns, &long)), (1, 1));
    assert!(store.stats().counters.expired > 0);
    at_rest(&store);
    drop((ns, hasty));
    drop(store);

    let store = open(dir.path(), &options());
    assert_eq!((store.recovered().objects, store.recovered().expired), (2, 1));
    let ns = namespace(&store, &layout, "a");
    assert_eq!([&short, &long, &by_namespace].map(|tokens| check(&ns, tokens)), [1, 1, 0]);
}

/// Expired objects are the first victims: nothing that lives is evicted while there are any.
#[test]
fn expired_objects_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { disk_objects: Some(40), host_bytes: 0, ..options() });
    let ns = namespace(&store, &layout(32), "a");
    for seed in 0..20 {
        assert_eq!(put_for(&ns, &prompt(seed, 1), None), Status::Stored);
    }
    for seed in 20..40 {
        assert_eq!(put_for(&ns, &prompt(seed, 1), Some(SHORT)), Status::Stored);
    }
    wait_for_its_end(&ns, &prompt(39, 1));
    for seed in 40..60 {
        assert_eq!(put_for(&ns, &prompt(seed, 1), None), Status::Stored);
    }
    let living = (0..20).chain(40..60).map(|seed| check(&ns, &prompt(seed, 1))).sum::<usize>();
    assert_eq!((living, store.stats().counters.evicted_disk), (40, 0));
    at_rest(&store);
}

/// B1-10: a clear of a namespace reaches every tier at once, spares others, survives a kill, and
/// its space is taken again later.
#[test]
fn a_clear_reaches_every_tier_and_survives_a_kill() {
    let disk = FaultDisk::new();
    let layout = layout(32);
    let tokens = prompt(1, 20);
    {
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let (ns, other) = (namespace(&store, &layout, "a"), namespace(&store, &layout, "b"));
        let tenant = salted(&store, &layout, "a", b"tenant");
        for ns in [&ns, &other, &tenant] {
            put_and_wait(ns, &tokens, Ack::Ssd);
        }
        let old = matched(&ns, &tokens);
        assert_eq!(ns.clear(false).unwrap(), 40, "of all its tenants");
        assert_eq!(
            (check(&ns, &tokens), check(&tenant, &tokens), check(&other, &tokens)),
            (0, 0, 20)
        );
        let lease = ns.lease(&old);
        assert!(lease.plan().bodies.is_empty(), "a plan of before the clear gives nothing");
        assert_eq!(put_and_wait(&ns, &prompt(2, 5), Ack::Ssd), [Status::Stored; 5]);
        disk.kill(1);
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    let (ns, other) = (namespace(&store, &layout, "a"), namespace(&store, &layout, "b"));
    assert_eq!(
        (check(&ns, &tokens), check(&ns, &prompt(2, 5)), check(&other, &tokens)),
        (0, 5, 20)
    );
    assert_eq!(store.stats().objects, 25);
    at_rest(&store);
}

/// A clear of a tenant reaches all namespaces and no other tenant.
#[test]
fn a_clear_of_a_tenant_spares_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(32);
    let tokens = prompt(1, 10);
    let all = |store: &Store| -> Vec<usize> {
        let names = [("a", &b"one"[..]), ("b", b"one"), ("a", b"two"), ("a", b"")];
        names.map(|(model, salt)| check(&salted(store, &layout, model, salt), &tokens)).to_vec()
    };
    {
        let store = open(dir.path(), &options());
        for (model, salt) in [("a", &b"one"[..]), ("b", b"one"), ("a", b"two"), ("a", b"")] {
            put_and_wait(&salted(&store, &layout, model, salt), &tokens, Ack::Ssd);
        }
        assert_eq!(store.clear_tenant(b"one", false).unwrap(), 20);
        assert_eq!(all(&store), [0, 0, 10, 10]);
        assert!(store.clear_tenant(b"", false).is_err());
    }
    let store = open(dir.path(), &options());
    assert_eq!(all(&store), [0, 0, 10, 10]);
    at_rest(&store);
}

/// A put on its way when a clear comes ends as `cleared`, and its bytes do not come back.
#[test]
fn a_put_on_its_way_is_cleared_as_well() {
    let disk = FaultDisk::new();
    let layout = layout(32);
    let tokens = prompt(1, 10);
    {
        let (store, device) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        device.inject(Rule::always(File::Data, OpKind::Write, Fault::Stuck));
        let batch = put(&ns, &tokens, 0, Ack::Ssd);
        while store.stats().in_flight == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::scope(|scope| {
            let clear = scope.spawn(|| ns.clear(false));
            assert!(batch.wait(soon()), "those who wait are told before the writes are over");
            assert_eq!(batch.status(), [Status::Rejected(Reason::Cleared); 10]);
            device.heal();
            while !clear.is_finished() {
                device.release();
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(clear.join().unwrap().unwrap(), 10);
        });
        assert_eq!(check(&ns, &tokens), 0);
        at_rest(&store);
        assert_eq!(store.stats().disk.objects, 0);
        disk.kill(1);
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    assert_eq!(store.recovered().objects, 0);
    assert_eq!(check(&namespace(&store, &layout, "a"), &tokens), 0);
}

/// `erase` overwrites the bytes and the descriptors of what it clears, and nothing else.
#[test]
fn erase_leaves_no_byte_behind() {
    let disk = FaultDisk::new();
    let layout = layout(192);
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    let (ns, other) = (namespace(&store, &layout, "a"), namespace(&store, &layout, "b"));
    let tokens = prompt(1, 10);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    put_and_wait(&other, &tokens, Ack::Ssd);
    let gone = ns.keys(&tokens, &Extras::none()).unwrap();
    let has = |file: File, part: &[u8]| {
        disk.contents(file).windows(part.len()).any(|window| window == part)
    };
    let pieces: Vec<Vec<u8>> = gone
        .iter()
        .map(|key| payload(key, layout.body_bytes() as usize)[20_000..20_064].to_vec())
        .collect();
    assert!(pieces.iter().all(|piece| has(File::Data, piece)));
    assert!(gone.iter().all(|key| has(File::Table, &key.fingerprint())));
    assert_eq!(ns.clear(true).unwrap(), 10);
    assert!(pieces.iter().all(|piece| !has(File::Data, piece)), "payloads are overwritten");
    assert!(gone.iter().all(|key| !has(File::Table, &key.fingerprint())), "descriptors as well");
    assert_eq!((check(&ns, &tokens), check(&other, &tokens)), (0, 10));
    at_rest(&store);
}

/// A plan and a put carry the epochs of their keys: others' newer keys on the same handle make
/// them no younger.
#[test]
fn keys_of_before_a_clear_stay_cleared_whatever_the_handle_does_since() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let layout = layout(192);
    let ns = namespace(&store, &layout, "a");
    let tokens = prompt(1, 2);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let epochs = ns.epochs();
    let old = keys(&ns, &tokens);
    let found = matched(&ns, &tokens);
    ns.clear(false).unwrap();
    // The same prompt under the new epoch.
    put_and_wait(&ns, &tokens, Ack::Ssd);
    assert_eq!(ns.lease(&found).plan().usable, 0);
    let data = payload(&old[0], layout.body_bytes() as usize);
    let one = object(&old, 0, Kind::Body, &data);
    let put = PutOptions { ack: Ack::Ssd, epochs: Some(epochs), ..PutOptions::default() };
    let batch = ns.put_objects(&[one], put);
    assert!(batch.wait(soon()));
    assert_eq!(batch.status(), [Status::Rejected(Reason::Cleared)]);
}
