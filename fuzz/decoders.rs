//! One entry to every decoder for arbitrary bytes: what the fuzz target and the tests of
//! kvstore-codec call.

use kvstore_codec::lossless::{Packer, frame_words};
use kvstore_codec::record::gqa::{Order, Page, Scales};
use kvstore_codec::record::{self, move_entries, unpack};
use kvstore_codec::scheme::{Given, Global, Scale, presets};
use kvstore_codec::swizzle::ScaleLayout;
use kvstore_codec::{Coded, Element, Error, Level, Options, Stores, Target, decode, e8m0, planes};

/// Takes what it needs from the front of the input; zeros when that is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A boxed slice of exactly `count` bytes, so that a read past it is one past an allocation.
    fn bytes(&mut self, count: usize) -> Box<[u8]> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn float(&mut self) -> f32 {
        f32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }
}

fn options(input: &mut Input<'_>) -> Options {
    let levels = Level::available();
    let level = Some(levels[input.below(levels.len())]);
    Options { level, threads: 1, stores: Stores::Cached }
}

/// Decodes `bytes` by the decoder that its first byte picks. Errors are fine; panics are not.
pub(crate) fn decode_all(bytes: &[u8]) {
    let mut input = Input(bytes);
    let outcome = match input.byte() % 6 {
        0 => scheme(&mut input),
        1 => page(&mut input),
        2 => moved(&mut input),
        3 => gqa(&mut input),
        4 => frame(&mut input),
        _ => small(&mut input),
    };
    // What is refused is refused with a message.
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty());
    }
}

fn scheme(input: &mut Input<'_>) -> Result<(), Error> {
    let all = presets::all();
    let scheme = &all[input.below(all.len())].scheme;
    let options = options(input);
    let (rows, cols) = (1 + input.below(33), 1 + input.below(200));
    // Mostly shapes that fit the block.
    let (rows, cols) = match (scheme.block.rows, scheme.block.cols) {
        (r, c) if input.byte() != 0 => {
            (rows.next_multiple_of(r.max(1)), cols.next_multiple_of(c.max(1)))
        }
        _ => (rows, cols),
    };
    let rows = rows.next_multiple_of(scheme.rows_per_word());
    let sizes = scheme.sizes(rows, cols)?;
    let scale = [input.float()];
    let given = Given {
        scale: if scheme.scale == Scale::Given { &scale } else { &[] },
        global: match scheme.scale {
            Scale::Nv(nv) if nv.global != Global::None => Some(input.float()),
            _ => None,
        },
    };
    let [codes, scales, mins] = [sizes.codes, sizes.scales, sizes.mins].map(|n| input.bytes(n));
    let coded = Coded { codes: &codes, scales: &scales, mins: &mins };
    match input.byte() % 3 {
        0 => {
            let mut out = vec![0u16; rows * cols].into_boxed_slice();
            decode(scheme, coded, cols, given, Target::Bf16(&mut out), &options)
        }
        1 => {
            let mut out = vec![0u16; rows * cols].into_boxed_slice();
            decode(scheme, coded, cols, given, Target::F16(&mut out), &options)
        }
        _ => {
            let mut out = vec![0f32; rows * cols].into_boxed_slice();
            decode(scheme, coded, cols, given, Target::F32(&mut out), &options)
        }
    }
}

fn page(input: &mut Input<'_>) -> Result<(), Error> {
    let all = record::all();
    let format = &all[input.below(all.len())];
    let options = options(input);
    let (entries, count) = (input.below(5), 1 + input.below(9));
    let bytes = count.div_ceil(entries.max(1)) * format.page_bytes(entries);
    // Sometimes a byte more or less than the pages need.
    let (more, less) = (input.below(3), input.below(3));
    let pages = input.bytes((bytes + more).saturating_sub(less));
    let mut rows = vec![0u16; count * format.dim].into_boxed_slice();
    unpack(format, &pages, entries, &mut rows, &options)
}

fn moved(input: &mut Input<'_>) -> Result<(), Error> {
    let all = record::all();
    let (from, to) = (&all[input.below(all.len())], &all[input.below(all.len())]);
    let (a, b, count) = (1 + input.below(5), 1 + input.below(5), 1 + input.below(9));
    let source = input.bytes(count.div_ceil(a) * from.page_bytes(a));
    let mut target = vec![0; count.div_ceil(b) * to.page_bytes(b)].into_boxed_slice();
    move_entries((from, a), &source, (to, b), &mut target, count)
}

fn gqa(input: &mut Input<'_>) -> Result<(), Error> {
    let all = presets::all();
    let preset = &all[input.below(all.len())].name;
    let order = [Order::Nhd, Order::Hnd][input.below(2)];
    let scales = [Scales::After, Scales::Inline, Scales::AfterSwizzledV][input.below(3)];
    let shape = [input.below(9), input.below(4), 16 * input.below(9)];
    let page = Page::new(preset, shape, order, scales)?;
    let bytes = input.bytes(page.bytes()?);
    let given = if input.byte() == 0 { [input.float(), input.float()] } else { [1.0, 1.0] };
    let (mut keys, mut values) = (vec![0u16; page.elements()], vec![0u16; page.elements()]);
    page.unpack(&bytes, given, [&mut keys, &mut values])
}

fn frame(input: &mut Input<'_>) -> Result<(), Error> {
    let frame = input.bytes(input.0.len());
    let words = frame_words(&frame)?;
    if words > 1 << 20 {
        return Ok(());
    }
    let mut out = vec![0u16; words];
    Packer::new()?.decode(&frame, &mut out)
}

fn small(input: &mut Input<'_>) -> Result<(), Error> {
    let options = options(input);
    let element = Element::ALL[input.below(Element::ALL.len())];
    let count = input.below(200);
    let codes = input.bytes(count);
    let mut values = vec![0f32; count];
    element.decode_all(&codes, &mut values)?;
    assert!(codes.iter().all(|code| e8m0::decode(*code) != 0.0));
    let mut words = vec![0u16; count / 2];
    planes::join(&codes[..count / 2 * 2], &mut words, &options)?;
    let layout = [ScaleLayout::Linear, ScaleLayout::Tiles128x4, ScaleLayout::Four4][input.below(3)];
    let (rows, groups) = (input.below(140), input.below(9));
    let laid = input.bytes(layout.bytes(rows, groups));
    layout.undo(&laid, rows, groups, &mut vec![0; rows * groups])
}
