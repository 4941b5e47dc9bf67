//! Object keys: what the store keeps for a block, each under a key of its own.
//!
//! A bare body has the block's key itself. Everything else is BLAKE3 keyed with the namespace digest over
//! 53 bytes:
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | `kvstore-object-1` (ASCII) |
//! | 1 | kind: 1 body, 2 window, 3 checkpoint |
//! | 32 | key of the block that the object belongs to, or that ends where the checkpoint is |
//! | 4 | part number, u32 little-endian; 0 for a bare window or checkpoint |
//!
//! A body in parts never shares a key with the bare body: its part 0 goes through the hash. A window or
//! checkpoint is bare or in parts by its length, which is the same for all of a namespace; so bare and
//! part 0 have one key.
//!
//! Parents: of a body, the first object of the block before ([`first_object`]; none for block 0); of a
//! window or checkpoint, the first object of its own block (of its nearest stored ancestor where the
//! layout has no entries); of part j > 0, its part 0. A wrong parent can cost hit ratio, never bytes.

use super::{Key, NamespaceDigest};

const LABEL: &[u8; 16] = b"kvstore-object-1";

/// What kind of bytes an object holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectKind {
    /// The pages of all `entries` groups of one block.
    Body = 1,
    /// The pages of all `window` groups of one block.
    Window = 2,
    /// All `state` bytes at one block end.
    Checkpoint = 3,
}

/// Whether an object is all of it or one of several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Piece {
    /// All of it.
    Bare,
    /// Part of this number; part 0 begins with the manifest.
    Part(u32),
}

/// The key of an object of the block with key `block`.
pub fn object_key(namespace: &NamespaceDigest, block: &Key, kind: ObjectKind, piece: Piece) -> Key {
    let part = match (kind, piece) {
        (ObjectKind::Body, Piece::Bare) => return *block,
        (_, Piece::Bare) => 0,
        (_, Piece::Part(part)) => part,
    };
    let mut message = [0; 53];
    message[..16].copy_from_slice(LABEL);
    message[16] = kind as u8;
    message[17..49].copy_from_slice(block.as_bytes());
    message[49..].copy_from_slice(&part.to_le_bytes());
    Key::from_bytes(*blake3::keyed_hash(namespace.as_bytes(), &message).as_bytes())
}

/// The key of a block's first object, under which the next block and its own other objects hang: the
/// bare body, or part 0 where the layout's bodies are in parts.
pub fn first_object(namespace: &NamespaceDigest, block: &Key, body_in_parts: bool) -> Key {
    let piece = if body_in_parts { Piece::Part(0) } else { Piece::Bare };
    object_key(namespace, block, ObjectKind::Body, piece)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const NAMESPACE: NamespaceDigest = NamespaceDigest::from_bytes([9; 32]);
    const BLOCK: Key = Key::from_bytes([1; 32]);

    #[test]
    fn a_bare_body_has_the_key_of_its_block_and_nothing_else_does() {
        let key = |kind, piece| object_key(&NAMESPACE, &BLOCK, kind, piece);
        assert_eq!(key(ObjectKind::Body, Piece::Bare), BLOCK);
        let mut keys = HashSet::from([BLOCK]);
        for kind in [ObjectKind::Body, ObjectKind::Window, ObjectKind::Checkpoint] {
            for part in [0, 1, 2, 255, 256, u32::MAX] {
                assert!(keys.insert(key(kind, Piece::Part(part))), "{kind:?} {part}");
            }
        }
    }

    #[test]
    fn a_bare_window_or_checkpoint_is_part_zero() {
        for kind in [ObjectKind::Window, ObjectKind::Checkpoint] {
            assert_eq!(
                object_key(&NAMESPACE, &BLOCK, kind, Piece::Bare),
                object_key(&NAMESPACE, &BLOCK, kind, Piece::Part(0))
            );
        }
    }

    #[test]
    fn the_first_object_is_the_bare_body_or_part_zero() {
        assert_eq!(first_object(&NAMESPACE, &BLOCK, false), BLOCK);
        let part = object_key(&NAMESPACE, &BLOCK, ObjectKind::Body, Piece::Part(0));
        assert_eq!(first_object(&NAMESPACE, &BLOCK, true), part);
    }
}
