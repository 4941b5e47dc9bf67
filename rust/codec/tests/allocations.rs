//! The hot path allocates nothing: encoding, decoding, packing and unpacking on one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use kvstore_codec::record::gqa::{Order, Page, Scales};
use kvstore_codec::record::{self, pack, unpack};
use kvstore_codec::scheme::{Given, Global, Scale, presets};
use kvstore_codec::{Coded, Encoded, Options, Source, Target, decode, encode, planes};

/// The system's allocator, counting this thread's calls.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of a second call: the first may fill tables that stay.
fn second_call(mut work: impl FnMut()) -> usize {
    work();
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

const ONE: Options = Options { level: None, threads: 1, stores: kvstore_codec::Stores::Auto };

#[test]
fn schemes_allocate_nothing() {
    let (rows, cols) = (128, 512);
    let words: Vec<u16> = (0..rows * cols).map(|i| 0x3F00 + (i % 251) as u16).collect();
    let mut back = vec![0u16; words.len()];
    for preset in presets::all() {
        let scheme = &preset.scheme;
        let sizes = scheme.sizes(rows, cols).unwrap();
        let mut buffers = [sizes.codes, sizes.scales, sizes.mins].map(|n| vec![0u8; n]);
        let global = match scheme.scale {
            Scale::Nv(nv) if nv.global != Global::None => Some(1.0),
            _ => None,
        };
        let scale: &[f32] = if scheme.scale == Scale::Given { &[1.0] } else { &[] };
        let given = Given { scale, global };
        let calls = second_call(|| {
            let [codes, scales, mins] = &mut buffers;
            let out = Encoded { codes, scales, mins };
            encode(scheme, Source::Bf16(&words), cols, given, out, &ONE).unwrap();
            let [codes, scales, mins] = &buffers;
            let coded = Coded { codes, scales, mins };
            decode(scheme, coded, cols, given, Target::Bf16(&mut back), &ONE).unwrap();
        });
        assert_eq!(calls, 0, "{}", preset.name);
    }
}

#[test]
fn pages_allocate_nothing() {
    for format in record::all() {
        let mut rows = vec![0x3F80u16; 64 * format.dim];
        let mut pages = vec![0u8; format.page_bytes(64)];
        let calls = second_call(|| {
            pack(format, &rows, 64, &mut pages, &ONE).unwrap();
            unpack(format, &pages, 64, &mut rows, &ONE).unwrap();
        });
        assert_eq!(calls, 0, "{}", format.name);
    }
    let page = Page::new("nvfp4.global", [16, 4, 128], Order::Hnd, Scales::AfterSwizzledV).unwrap();
    let (mut keys, mut values) =
        (vec![0x3F80u16; page.elements()], vec![0x3F80u16; page.elements()]);
    let mut bytes = vec![0u8; page.bytes().unwrap()];
    let calls = second_call(|| {
        page.pack([&keys, &values], [1.0, 1.0], &mut bytes).unwrap();
        page.unpack(&bytes, [1.0, 1.0], [&mut keys, &mut values]).unwrap();
    });
    assert_eq!(calls, 0);
    let mut split = vec![0u8; 2 * keys.len()];
    assert_eq!(second_call(|| planes::split(&keys, &mut split, &ONE).unwrap()), 0);
}
