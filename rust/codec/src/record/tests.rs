//! Golden records made by our own generator, page shapes, and moves between them.

use std::path::PathBuf;

use super::*;
use crate::float::f32_to_bf16;
use crate::options::Options;

/// The rows of `reference/layouts.md` section 9: token `k`, `dim` elements, stream 0 or 1.
pub(crate) fn golden_row(k: usize, dim: usize, stream: usize) -> Vec<u16> {
    let element = |d: usize| {
        let index = (k * dim + d + (stream << 20)) as u64;
        let hash = (index * 2_654_435_761 + 0x9E37_79B9) & 0xFFFF_FFFF;
        let octave = f64::from((d >> 4) as u32 % 7) - 3.0;
        f32_to_bf16(((hash as f64 / 4_294_967_296.0 - 0.5) * 8.0 * octave.exp2()) as f32)
    };
    (0..dim).map(element).collect()
}

fn golden_rows(count: usize, dim: usize, stream: usize) -> Vec<u16> {
    (0..count).flat_map(|k| golden_row(k, dim, stream)).collect()
}

fn packed(name: &str, rows: &[u16], entries: usize) -> Vec<u8> {
    let format = named(name).unwrap();
    let pages = (rows.len() / format.dim).div_ceil(entries);
    let mut out = vec![0xEE; pages * format.page_bytes(entries)];
    pack(format, rows, entries, &mut out, &Options::default()).unwrap();
    out
}

fn unpacked(name: &str, pages: &[u8], entries: usize, count: usize) -> Vec<u16> {
    let format = named(name).unwrap();
    let mut rows = vec![0xEEEE; count * format.dim];
    unpack(format, pages, entries, &mut rows, &Options::default()).unwrap();
    rows
}

/// The files are tests/golden/codec/NAME.bin, written by `make_golden.py` beside them, which is
/// independent of this crate.
#[test]
fn small_records_equal_the_golden_files() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/codec"));
    let cases = [
        ("fp8_ds_mla.raw", 1, 576, 0),
        ("fp8_ds_mla", 1, 576, 0),
        ("nvfp4_ds_mla", 1, 576, 0),
        ("nvfp4_mla_416", 1, 576, 0),
        ("v4_main", 2, 512, 0),
        ("v41_window", 1, 512, 0),
        ("v41_main", 1, 512, 0),
        ("index_fp8", 2, 128, 1),
        ("index_fp4", 2, 128, 1),
    ];
    for (name, entries, dim, stream) in cases {
        let golden = std::fs::read(folder.join(format!("{name}.bin"))).unwrap();
        let pages = packed(name, &golden_rows(entries, dim, stream), entries);
        assert_eq!(pages, golden, "{name}");
    }
}

#[test]
fn sizes_are_those_of_the_engines() {
    let page = |name, entries| named(name).unwrap().page_bytes(entries);
    assert_eq!(page("fp8_ds_mla", 64), 41_984);
    assert_eq!(page("v4_main", 64), 37_440);
    assert_eq!(page("v4_main", 2), 1_728);
    assert_eq!(page("index_fp8", 64), 8_448);
    assert_eq!(page("index_fp8.v4", 64), 8_640);
    assert_eq!(page("index_fp4", 64), 4_352);
    assert_eq!(page("index_fp4.v4", 64), 4_608);
    assert_eq!(page("index_fp4.v41", 64), 4_608);
    assert_eq!(page("index_fp4.v41", 128), 8_704);
    assert_eq!(page("v41_window", 32), 16_896);
    assert_eq!(page("v41_main", 128), 36_864);
}

#[test]
fn parts_cover_each_row_and_stay_inside_each_record() {
    for format in all() {
        let mut col = 0;
        let mut data = vec![0; format.data_bytes];
        let mut tail = vec![0; format.tail_bytes];
        for part in &format.parts {
            assert_eq!(part.col, col, "{}", format.name);
            col += part.cols;
            let mut claim = |place, bytes: usize| {
                let (plane, at) = match place {
                    Place::Data(at) => (&mut data, at),
                    Place::Tail(at) => (&mut tail, at),
                };
                plane[at..at + bytes].iter_mut().for_each(|b| *b += 1);
            };
            match part.coding {
                Coding::Copy => claim(part.at, 2 * part.cols),
                Coding::Cast(_) => claim(part.at, part.cols),
                Coding::Scheme { scheme, scales, .. } => {
                    let sizes = scheme.sizes(1, part.cols).unwrap();
                    claim(part.at, sizes.codes);
                    claim(scales, sizes.scales);
                }
            }
        }
        assert_eq!(col, format.dim, "{}", format.name);
        assert!(data.iter().all(|n| *n == 1), "{}: a gap or an overlap", format.name);
        let padding = usize::from(format.name.starts_with("v4_main"));
        assert_eq!(tail.iter().filter(|n| **n == 1).count(), format.tail_bytes - padding);
    }
}

#[test]
fn unused_entries_are_zero_and_not_read_back() {
    for format in all() {
        let rows = golden_rows(13, format.dim, 0);
        let pages = packed(format.name, &rows, 4);
        let full = packed(format.name, &[rows.clone(), vec![0; 3 * format.dim]].concat(), 4);
        let last = 3 * format.page_bytes(4);
        let first = &pages[last..last + format.data_bytes];
        assert_eq!(first, &full[last..last + format.data_bytes], "{}", format.name);
        assert!(
            pages[last + format.data_bytes..last + 4 * format.data_bytes].iter().all(|b| *b == 0)
        );
        let back = unpacked(format.name, &pages, 4, 13);
        assert_eq!(packed(format.name, &back, 4).len(), pages.len());
    }
}

#[test]
fn moved_entries_equal_packed_ones() {
    let moves = [
        ("v4_main", 64, "v4_main", 2),
        ("v41_window.split", 64, "v41_window", 32),
        ("v41_main", 128, "v41_main.split", 64),
        ("index_fp4", 32, "index_fp4.v4", 64),
        ("index_fp8.v4", 64, "index_fp8", 1),
        ("fp8_ds_mla", 64, "fp8_ds_mla", 1),
    ];
    for (from, from_entries, to, to_entries) in moves {
        let rows = golden_rows(70, named(from).unwrap().dim, 0);
        let (source, wanted) = (packed(from, &rows, from_entries), packed(to, &rows, to_entries));
        let mut moved = vec![0xEE; wanted.len()];
        let (f, t) = (named(from).unwrap(), named(to).unwrap());
        move_entries((f, from_entries), &source, (t, to_entries), &mut moved, 70).unwrap();
        assert!(moved == wanted, "{from} to {to}");
    }
    let (raw, exact) = (named("fp8_ds_mla.raw").unwrap(), named("fp8_ds_mla").unwrap());
    let error = move_entries((raw, 1), &[0; 656], (exact, 1), &mut [0; 656], 1).unwrap_err();
    assert!(error.to_string().contains("the columns and rules of fp8_ds_mla.raw"), "{error}");
}

#[test]
fn wrong_lengths_are_named() {
    let format = named("v4_main").unwrap();
    let error =
        pack(format, &[0; 512], 64, &mut [0; 37_376], &Options::default()).unwrap_err().to_string();
    assert!(error.contains("37376 bytes given, exactly 37440 wanted"), "{error}");
    let error =
        pack(format, &[0; 500], 64, &mut [0; 37_440], &Options::default()).unwrap_err().to_string();
    assert!(error.contains("500 given, a multiple of 512 wanted"), "{error}");
    let error = unpack(format, &[], 0, &mut [0; 512], &Options::default()).unwrap_err().to_string();
    assert!(error.contains("entries: 0 given"), "{error}");
    assert!(named("v5").unwrap_err().to_string().contains("\"v5\""));
}
