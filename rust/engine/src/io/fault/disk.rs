//! The medium, and the ways in which a process or the power leaves it.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::content::Content;
use super::device::Life;
use super::random::Random;
use crate::io::device::{File, OpKind};

/// A disk in memory. One device at a time uses it.
#[derive(Default)]
pub struct FaultDisk {
    files: Mutex<[Content; File::ALL.len()]>,
    /// The device in use. Locked before its queue, and that before `files`.
    life: Mutex<Option<Arc<Life>>>,
}

impl FaultDisk {
    /// An empty disk.
    pub fn new() -> Arc<FaultDisk> {
        Arc::default()
    }

    /// The process dies, as by `kill -9`: what completed stays, of each write in flight all,
    /// nothing or some is done. Its device does nothing more; what was in flight ends there as
    /// `Closed`.
    pub fn kill(&self, seed: u64) {
        let mut random = Random(seed);
        self.end_life(|content, offset, bytes| content.interrupt(offset, bytes, &mut random));
    }

    /// The power goes: of each write since the last sync of its file, in flight or completed,
    /// all, nothing or some is left. Lengths stay. The device ends as by [`FaultDisk::kill`].
    pub fn power_cut(&self, seed: u64) {
        self.end_life(|content, offset, bytes| content.cache(offset, bytes));
        let mut random = Random(seed);
        for content in &mut *self.files.lock() {
            content.power_cut(&mut random);
        }
    }

    /// Changes bytes on the medium behind everybody's back. The file grows where it is shorter.
    pub fn overwrite(&self, file: File, offset: usize, bytes: &[u8]) {
        self.files.lock()[file as usize].overwrite(offset, bytes);
    }

    /// Flips one bit on the medium; nothing happens behind the end of the file.
    pub fn flip_bit(&self, file: File, offset: usize, bit: u32) {
        let content = &mut self.files.lock()[file as usize];
        let mut byte = [0];
        if content.read(offset, &mut byte).is_ok() {
            content.overwrite(offset, &[byte[0] ^ 1 << (bit % 8)]);
        }
    }

    /// A copy of what a file holds now.
    pub fn contents(&self, file: File) -> Vec<u8> {
        self.files.lock()[file as usize].bytes()
    }

    pub(super) fn files(&self) -> MutexGuard<'_, [Content; File::ALL.len()]> {
        self.files.lock()
    }

    pub(super) fn attach(&self, life: &Arc<Life>) {
        let mut attached = self.life.lock();
        assert!(attached.is_none(), "another device uses the disk: kill, close or drop it first");
        *attached = Some(Arc::clone(life));
    }

    pub(super) fn detach(&self, life: &Arc<Life>) {
        let mut attached = self.life.lock();
        if attached.as_ref().is_some_and(|attached| Arc::ptr_eq(attached, life)) {
            *attached = None;
        }
    }

    /// Ends the device in use; `last` gets what is left to do of each write in flight.
    fn end_life(&self, mut last: impl FnMut(&mut Content, usize, &[u8])) {
        let mut attached = self.life.lock();
        if let Some(life) = attached.take() {
            life.end(|op, offset, bytes| {
                if op.kind == OpKind::Write {
                    last(&mut self.files.lock()[op.file as usize], offset, bytes);
                }
            });
        }
    }
}
