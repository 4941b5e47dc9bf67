//! Clearing a namespace or a tenant: an epoch, written and flushed before it counts.
//!
//! Keys made before are unreachable at once, since the root of the chain depends on the epoch.
//! Recovery drops descriptors of an older sequence, so that no crash brings them back.

use super::batch::Reason;
use super::namespace::Namespace;
use super::open::{Shared, Store};
use super::state::{InFlight, Phase, State};
use crate::disk::PAGE;
use crate::disk::tenants::{self, TenantWrite};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{NamespaceDigest, tenant_tag};
use crate::io::device::File;
use kvstore_index::{Entry, EntryId};
use std::collections::HashSet;
use std::time::Instant;

impl Namespace {
    /// Makes everything stored in this namespace, by any tenant, unreachable. Answers the number
    /// of objects. `erase` overwrites their slots and descriptors as well, which takes longer.
    ///
    /// # Errors
    /// The epoch could not be written, or older writes did not end in time; the objects are
    /// unreachable in this process all the same.
    pub fn clear(&self, erase: bool) -> Result<u64> {
        self.shared.clear_namespace(self.index, &self.digest, erase)
    }
}

impl Store {
    /// Makes everything stored in the namespace with this digest unreachable: for whoever looks
    /// after a store without having the description.
    ///
    /// # Errors
    /// As [`Namespace::clear`]; no namespace has this digest.
    pub fn clear_namespace(&self, digest: &[u8; 32], erase: bool) -> Result<u64> {
        self.check_open()?;
        let index = self.shared.state.lock().namespaces.by_digest.get(digest).copied();
        let index = index.ok_or_else(|| {
            let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            Error::invalid(format!("no namespace of this store has the digest {hex}"))
        })?;
        self.shared.clear_namespace(index, &NamespaceDigest::from_bytes(*digest), erase)
    }

    /// Makes everything stored under this salt unreachable, in all namespaces.
    ///
    /// # Errors
    /// As [`Namespace::clear`]; an empty salt is no tenant.
    pub fn clear_tenant(&self, salt: &[u8], erase: bool) -> Result<u64> {
        self.check_open()?;
        self.shared.check_writable()?;
        if salt.is_empty() {
            return Err(Error::invalid(
                "cache_salt is empty: clear the namespaces to drop what has no salt",
            ));
        }
        let tag = tenant_tag(&self.shared.secret, salt);
        let written = self.shared.raise_tenant(tag);
        let cleared = self.shared.drop_where(erase, |entry| entry.tenant == tag);
        written.and(cleared)
    }
}

impl Shared {
    fn clear_namespace(&self, index: u16, digest: &NamespaceDigest, erase: bool) -> Result<u64> {
        self.check_writable()?;
        let meta = self.meta.lock();
        let record = {
            let mut state = self.state.lock();
            let epoch = state.next_sequence();
            let record = state.namespaces.records[usize::from(index)].as_mut();
            let Some(record) = record.filter(|record| record.digest == *digest.as_bytes()) else {
                return Err(Error::new(ErrorKind::Unusable, "the namespace's record is gone"));
            };
            record.epoch = epoch;
            record.generation += 1;
            record.clone()
        };
        let written = self.write_namespace(&meta, index, &record);
        drop(meta);
        let cleared = self.drop_where(erase, |entry| entry.namespace == index);
        written.and(cleared)
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::invalid(
                "the store is open read_only: open it for writing to clear",
            ));
        }
        if self.state.lock().phase != Phase::Open {
            return Err(Error::new(ErrorKind::Unusable, "the store is closed: open it again"));
        }
        Ok(())
    }

    /// Sets a tenant's epoch to now, on disk before it counts (INV-8).
    fn raise_tenant(&self, tag: u32) -> Result<()> {
        let meta = self.meta.lock();
        let (write, floor) = {
            let mut state = self.state.lock();
            let epoch = state.next_sequence();
            (state.tenants.set(tag, epoch), state.tenants.floor)
        };
        let pages = match write {
            TenantWrite::Page(page) => page..page + 1,
            TenantWrite::Floor => {
                self.change_superblock(&meta, |next| next.tenant_floor = floor).map_err(
                    |error| Error::io("cannot write the superblock of", &self.dir, error),
                )?;
                0..tenants::COUNT / tenants::PER_PAGE
            }
        };
        for page in pages {
            let image = self.state.lock().tenants.page(page);
            let offset = page as u64 * PAGE;
            for copy in [offset, tenants::COPY_BYTES + offset] {
                self.device.write_at(File::Tenants, copy, &image).map_err(|error| {
                    Error::io("cannot write the tenant table of", &self.dir, error)
                })?;
            }
        }
        self.device
            .sync(File::Tenants)
            .map_err(|error| Error::io("cannot flush the tenant table of", &self.dir, error))
    }

    /// Removes all objects that `matches` takes; returns when no older write is in flight.
    fn drop_where(&self, erase: bool, matches: impl Fn(&Entry) -> bool) -> Result<u64> {
        let deadline = Instant::now() + self.options.close_deadline;
        let mut state = self.state.lock();
        let gone: Vec<EntryId> =
            state.index.iter().filter(|(_, entry)| matches(entry)).map(|(id, _)| id).collect();
        if erase {
            // The slots stay taken until they have been overwritten.
            for &id in &gone {
                state.index.acquire(id);
            }
        }
        for &id in &gone {
            // A set of parts leaves together.
            if state.is_live(id) {
                state.remove(id, Reason::Cleared);
            }
        }
        let older: HashSet<u64> = state
            .in_flight
            .iter()
            .filter(|(_, what)| matches!(what, InFlight::Payload { .. } | InFlight::Page { .. }))
            .map(|(&token, _)| token)
            .collect();
        self.wake();
        while older.iter().any(|token| state.in_flight.contains_key(token)) {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                if erase {
                    for &id in &gone {
                        state.release(id);
                    }
                }
                return Err(Error::new(ErrorKind::Io, "older writes did not end in time"));
            }
        }
        let count = gone.len() as u64;
        drop(state);
        if erase {
            self.erase(&gone, deadline)?;
        }
        Ok(count)
    }

    /// Overwrites the slots of removed objects, then their descriptors.
    fn erase(&self, gone: &[EntryId], deadline: Instant) -> Result<()> {
        let failed = |error| Error::io("cannot erase slots of", &self.dir, error);
        let mut zeroes = Vec::new();
        let mut outcome = Ok(());
        for &id in gone {
            let place = {
                let state = self.state.lock();
                state.place_of(id).map(|place| (state.data_offset(place), stride(&state, id)))
            };
            if let Some((offset, stride)) = place {
                zeroes.resize(stride, 0);
                let written = self.device.write_at(File::Data, offset, &zeroes).map_err(failed);
                outcome = outcome.and(written);
            }
            self.state.lock().release(id);
        }
        let mut state = self.state.lock();
        self.wake();
        while !state.pages.is_idle() {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(Error::new(ErrorKind::Io, "descriptors were not overwritten in time"));
            }
        }
        drop(state);
        for file in [File::Data, File::Table] {
            outcome = outcome.and(self.device.sync(file).map_err(failed));
        }
        outcome
    }
}

fn stride(state: &State, id: EntryId) -> usize {
    super::meta::stride_of(state.index[id].length) as usize
}
