//! Every decoder on arbitrary bytes: no panic, no read outside the input.
//!
//! Buffers are exactly as long as the shape asks for, so that AddressSanitizer sees one byte more.

#![no_main]

#[path = "../decoders.rs"]
mod decoders;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| decoders::decode_all(bytes));
