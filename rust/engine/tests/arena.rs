//! What the arena promises about memory: who sees it, who may write it, when it is gone.

#![allow(clippy::print_stdout, reason = "roles speak to their test by it")]

mod common;

use std::os::unix::process::ExitStatusExt;

use kvstore_engine::host::{Arena, ArenaKind, Buf};

const KINDS: [ArenaKind; 2] = [ArenaKind::Private, ArenaKind::Shared];
const EXTENT: usize = 2 << 20;

fn fill(arena: &Arena, buf: Buf, byte: u8) {
    // SAFETY: the test is alone with the arena.
    unsafe { arena.bytes_mut(buf) }.fill(byte);
}

fn view_byte(arena: &Arena, buf: Buf) -> u8 {
    // SAFETY: the address is mapped for reading, and nobody writes at this time.
    unsafe { arena.view_ptr(buf).read_volatile() }
}

#[test]
fn views_see_what_the_engine_writes() {
    for kind in KINDS {
        let arena = Arena::new(kind, 2 * EXTENT, EXTENT).unwrap();
        assert_eq!((arena.extents(), arena.extent_bytes(), arena.kind()), (2, EXTENT, kind));
        let buf = Buf { extent: 1, offset: 8192, len: 4096 };
        assert_eq!(arena.ptr(buf) as usize % 4096, 0);
        for byte in [7, 9] {
            fill(&arena, buf, byte);
            assert_eq!(view_byte(&arena, buf), byte, "{}", arena.backing());
        }
        let one_memory = arena.view_ptr(buf) == arena.ptr(buf).cast_const();
        assert_eq!(one_memory, kind == ArenaKind::Private);
        assert_eq!(arena.descriptor().is_some(), kind == ArenaKind::Shared);
    }
}

#[test]
fn populate_keeps_the_contents() {
    for kind in KINDS {
        let arena = Arena::new(kind, 2 * EXTENT, EXTENT).unwrap();
        let buf = Buf { extent: 0, offset: 4096, len: 4096 };
        fill(&arena, buf, 3);
        arena.populate(0);
        arena.populate(1);
        assert_eq!(view_byte(&arena, buf), 3);
    }
}

#[test]
fn sizes_outside_of_the_rules_are_named() {
    for (bytes, extent, said) in [
        (EXTENT, 3 << 20, "extent_bytes 3145728 is not a power of two"),
        (EXTENT, 4096, "extent_bytes 4096 is not a power of two from 65536"),
        (0, EXTENT, "arena bytes 0 is not a positive multiple of extent_bytes 2097152"),
        (EXTENT + 4096, EXTENT, "arena bytes 2101248 is not a positive multiple"),
    ] {
        let error = Arena::new(ArenaKind::Private, bytes, extent).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
#[should_panic(expected = "is outside of an arena")]
fn a_buffer_ends_in_its_extent() {
    let arena = Arena::new(ArenaKind::Private, 2 * EXTENT, EXTENT).unwrap();
    arena.ptr(Buf { extent: 0, offset: u32::try_from(EXTENT).unwrap() - 10, len: 11 });
}

#[test]
fn a_memfd_can_be_mapped_but_neither_written_nor_resized_by_others() {
    let arena = Arena::new(ArenaKind::Shared, EXTENT, EXTENT).unwrap();
    fill(&arena, Buf { extent: 0, offset: 0, len: 16 }, 5);
    let fd = arena.descriptor().unwrap();
    let mut bytes = [0; 16];
    rustix::io::pread(fd, &mut bytes, 0).unwrap();
    assert_eq!(bytes, [5; 16]);
    assert!(rustix::io::pwrite(fd, &[1], 0).is_err());
    assert!(rustix::fs::ftruncate(fd, 0).is_err());
}

#[test]
fn writing_to_a_view_of_a_shared_arena_kills_the_writer() {
    let output = common::command("write_view").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("engine wrote"), "{said}");
    assert!(!said.contains("view wrote"), "{said}");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{said}");
}

#[test]
fn memory_is_given_back() {
    let output = common::command("give_back").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_forked_child_has_no_mapping_of_it() {
    for kind in KINDS {
        let arena = Arena::new(kind, EXTENT, EXTENT).unwrap();
        let buf = Buf { extent: 0, offset: 0, len: 1 };
        fill(&arena, buf, 1);
        let address = arena.view_ptr(buf);
        let child = common::fork(|| {
            // SAFETY: either the byte is readable or the child dies, which is the question.
            i32::from(unsafe { address.read_volatile() })
        });
        assert_eq!(common::wait(child), -libc::SIGSEGV, "{}", arena.backing());
    }
}

#[test]
fn in_a_role() {
    match common::role().as_deref() {
        Some("write_view") => write_view(),
        Some("give_back") => give_back(),
        _ => {}
    }
}

fn write_view() {
    let arena = Arena::new(ArenaKind::Shared, EXTENT, EXTENT).unwrap();
    let buf = Buf { extent: 0, offset: 0, len: 1 };
    fill(&arena, buf, 1);
    println!("engine wrote");
    // SAFETY: there is none; the process is meant to die here.
    unsafe { arena.view_ptr(buf).cast_mut().write_volatile(2) };
    println!("view wrote");
}

fn give_back() {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    for kind in KINDS {
        let before = resident();
        let arena = Arena::new(kind, 32 * EXTENT, EXTENT).unwrap();
        assert!(resident() < before + 4 * EXTENT, "reserving touched memory");
        for extent in 0..arena.extents() {
            fill(&arena, Buf { extent, offset: 0, len: 2 << 20 }, 1);
        }
        if arena.backing() != "memfd-hugetlb" {
            assert!(resident() > before + 31 * EXTENT, "{}", arena.backing());
        }
        drop(arena);
        assert!(resident() < before + 4 * EXTENT, "memory stayed after the last holder went");
    }
}
