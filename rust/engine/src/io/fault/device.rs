//! One life of a process on a [`FaultDisk`].

use std::io;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::apply::{read, sync, write};
use super::content::Content;
use super::disk::FaultDisk;
use super::plan::{Fault, FaultPlan, Rule};
use super::random::Random;
use crate::host::Arena;
use crate::io::device::{Completion, Device, File, Grown, Op, OpKind, PathInUse};
use crate::io::error::{IoErrorKind, failed, to_io};

/// The device. Operations are done inside [`Device::complete`] and [`Device::close`].
pub struct FaultDevice {
    disk: Arc<FaultDisk>,
    life: Arc<Life>,
    plan: FaultPlan,
}

/// What ends with the process: the queue, and the memory that its operations use.
pub(super) struct Life {
    arena: Arc<Arena>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    flights: Vec<Flight>,
    done: Vec<Completion>,
    rules: Vec<Rule>,
    random: Random,
    grown: Option<Grown>,
    woken: bool,
    closed: bool,
    dead: bool,
}

struct Flight {
    op: Op,
    fault: Option<Fault>,
    /// Bytes done by an earlier piece.
    moved: usize,
}

impl FaultDevice {
    /// A device on `disk`.
    ///
    /// # Panics
    /// If another device on it is neither killed, closed nor dropped.
    pub fn new(disk: Arc<FaultDisk>, arena: Arc<Arena>, plan: FaultPlan) -> FaultDevice {
        let queue = Queue {
            flights: Vec::new(),
            done: Vec::new(),
            rules: plan.rules.clone(),
            random: Random(plan.seed),
            grown: None,
            woken: false,
            closed: false,
            dead: false,
        };
        let life = Arc::new(Life { arena, queue: Mutex::new(queue), changed: Condvar::new() });
        disk.attach(&life);
        FaultDevice { disk, life, plan }
    }

    /// Adds a fault, for operations submitted from now on. Goes before those there are.
    pub fn inject(&self, rule: Rule) {
        self.life.queue.lock().rules.insert(0, rule);
    }

    /// Forgets all faults; those of operations in flight stay.
    pub fn heal(&self) {
        self.life.queue.lock().rules.clear();
    }

    /// Lets all stuck operations go on.
    pub fn release(&self) {
        let mut queue = self.life.queue.lock();
        for flight in queue.flights.iter_mut().filter(|flight| flight.is_stuck()) {
            flight.fault = None;
        }
        self.life.changed.notify_all();
    }

    /// Does some of what can be done, in the plan's order.
    fn step(&self, queue: &mut Queue) {
        let can = queue.flights.iter().filter(|flight| !flight.is_stuck()).count();
        let steps = match (can, self.plan.reorder) {
            (0, _) | (_, false) => can,
            (_, true) => 1 + queue.random.below(can),
        };
        for _ in 0..steps {
            let ready: Vec<usize> = (0..queue.flights.len())
                .filter(|&at| queue.flights.get(at).is_some_and(|flight| !flight.is_stuck()))
                .collect();
            let pick = if self.plan.reorder { queue.random.below(ready.len().max(1)) } else { 0 };
            let Some(&at) = ready.get(pick) else { return };
            let mut flight = queue.flights.remove(at);
            let op = flight.op;
            match self.fly(&mut flight, &mut queue.random) {
                None => queue.flights.insert(at, flight),
                Some(Ok(())) => queue.done.push(Completion { token: op.token, result: Ok(()) }),
                Some(Err(kind)) => queue.done.push(failed(&op, kind)),
            }
        }
    }

    /// Does an operation, or a piece of it and then no result yet.
    fn fly(&self, flight: &mut Flight, random: &mut Random) -> Option<Result<(), IoErrorKind>> {
        let op = flight.op;
        let content = &mut self.disk.files()[op.file as usize];
        let offset = place(op.offset) + flight.moved;
        let len = op.buf.len as usize;
        let goal = match flight.fault {
            Some(Fault::Short) if len > 1 => {
                flight.fault = None;
                1 + random.below(len - 1)
            }
            _ => len,
        };
        let result = match op.kind {
            OpKind::Sync => sync(content, flight.fault),
            OpKind::Write => {
                // SAFETY: the buffer is this operation's until its completion (C7).
                let bytes = unsafe { self.life.arena.bytes(op.buf) };
                write(content, offset, &bytes[flight.moved..goal], flight.fault, random)
            }
            OpKind::Read => {
                // SAFETY: as above.
                let bytes = unsafe { self.life.arena.bytes_mut(op.buf) };
                read(content, offset, &mut bytes[flight.moved..goal], flight.fault, random)
            }
        };
        flight.moved = goal;
        (goal == len || result.is_err()).then_some(result)
    }

    /// Runs a synchronous call, with the fault that befalls it, if the process lives.
    fn call<R>(
        &self,
        file: File,
        kind: OpKind,
        work: impl FnOnce(&mut Content, Option<Fault>, &mut Random) -> Result<R, IoErrorKind>,
    ) -> io::Result<R> {
        let mut queue = self.life.queue.lock();
        if queue.dead {
            return Err(to_io(IoErrorKind::Closed));
        }
        let fault = queue.befall(file, kind);
        let content = &mut self.disk.files()[file as usize];
        work(content, fault, &mut queue.random).map_err(to_io)
    }
}

impl Device for FaultDevice {
    fn submit(&self, ops: &[Op]) -> usize {
        let mut queue = self.life.queue.lock();
        let room = self.plan.capacity.saturating_sub(queue.in_flight());
        let taken = &ops[..ops.len().min(room)];
        for op in taken {
            // Panics for a buffer outside of the arena.
            let _ = self.life.arena.ptr(op.buf);
            if queue.closed || queue.dead {
                queue.done.push(failed(op, IoErrorKind::Closed));
            } else if !op.aligned(self.plan.unit) {
                queue.done.push(failed(op, IoErrorKind::Misaligned));
            } else {
                let fault = queue.befall(op.file, op.kind);
                queue.flights.push(Flight { op: *op, fault, moved: 0 });
            }
        }
        self.life.changed.notify_all();
        taken.len()
    }

    fn complete(&self, out: &mut Vec<Completion>, deadline: Instant) -> usize {
        let mut queue = self.life.queue.lock();
        loop {
            self.step(&mut queue);
            if !queue.done.is_empty() || queue.woken {
                break;
            }
            let waits_for_others = queue.flights.iter().all(Flight::is_stuck);
            if waits_for_others && self.life.changed.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        queue.woken = false;
        let count = queue.done.len();
        out.append(&mut queue.done);
        count
    }

    fn wake(&self) {
        self.life.queue.lock().woken = true;
        self.life.changed.notify_all();
    }

    fn in_flight(&self) -> usize {
        self.life.queue.lock().in_flight()
    }

    fn capacity(&self) -> usize {
        self.plan.capacity
    }

    fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.disk.files()[file as usize].len())
    }

    fn grow(&self, file: File, len: u64) -> io::Result<Grown> {
        let mut queue = self.life.queue.lock();
        if queue.dead {
            return Err(to_io(IoErrorKind::Closed));
        }
        let files = &mut *self.disk.files();
        let old = files[file as usize].len();
        let all: u64 = files.iter().map(Content::len).sum();
        let grown = if self.plan.allocates { Grown::Allocated } else { Grown::Sparse };
        if len > old {
            if self.plan.allocates && all + (len - old) > self.plan.space {
                return Err(io::ErrorKind::StorageFull.into());
            }
            files[file as usize].set_len(place(len));
            queue.grown = Some(grown);
        }
        Ok(grown)
    }

    fn truncate(&self, file: File, len: u64) -> io::Result<()> {
        if self.life.queue.lock().dead {
            return Err(to_io(IoErrorKind::Closed));
        }
        let content = &mut self.disk.files()[file as usize];
        if content.len() > len {
            content.set_len(place(len));
        }
        Ok(())
    }

    fn sync(&self, file: File) -> io::Result<()> {
        self.call(file, OpKind::Sync, |content, fault, _| sync(content, fault))
    }

    fn read_at(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.call(file, OpKind::Read, |content, fault, random| {
            read(content, place(offset), bytes, fault, random)
        })
    }

    fn write_at(&self, file: File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.call(file, OpKind::Write, |content, fault, random| {
            write(content, place(offset), bytes, fault, random)
        })
    }

    fn path_in_use(&self) -> PathInUse {
        PathInUse {
            engine: "fault",
            direct: true,
            unit: self.plan.unit,
            allocation: self.life.queue.lock().grown.map_or("none", Grown::as_str),
            why: "a device for tests".to_owned(),
        }
    }

    fn close(&self, deadline: Instant) -> bool {
        let mut queue = self.life.queue.lock();
        queue.closed = true;
        while !queue.flights.is_empty() {
            self.step(&mut queue);
            let stuck = queue.flights.iter().all(Flight::is_stuck) && !queue.flights.is_empty();
            if stuck && self.life.changed.wait_until(&mut queue, deadline).timed_out() {
                return false;
            }
        }
        self.life.changed.notify_all();
        drop(queue);
        self.disk.detach(&self.life);
        true
    }
}

impl Drop for FaultDevice {
    fn drop(&mut self) {
        self.life.end(|_, _, _| {});
        self.disk.detach(&self.life);
    }
}

impl Life {
    /// Ends all operations as `Closed`; `last` gets what each had left to do: the place in the
    /// file, and the bytes of a write or those that a read would replace.
    pub(super) fn end(&self, mut last: impl FnMut(&Op, usize, &[u8])) {
        let mut queue = self.queue.lock();
        queue.dead = true;
        for flight in std::mem::take(&mut queue.flights) {
            // SAFETY: the buffer is this operation's until its completion (C7), which follows.
            let bytes = unsafe { self.arena.bytes(flight.op.buf) };
            last(&flight.op, place(flight.op.offset) + flight.moved, &bytes[flight.moved..]);
            queue.done.push(failed(&flight.op, IoErrorKind::Closed));
        }
        self.changed.notify_all();
    }
}

impl Queue {
    fn in_flight(&self) -> usize {
        self.flights.len() + self.done.len()
    }

    /// All rules count the operation, the first that has it gives the fault.
    fn befall(&mut self, file: File, kind: OpKind) -> Option<Fault> {
        let faults: Vec<Fault> =
            self.rules.iter_mut().filter_map(|rule| rule.befall(file, kind)).collect();
        faults.first().copied()
    }
}

impl Flight {
    fn is_stuck(&self) -> bool {
        self.fault == Some(Fault::Stuck)
    }
}

/// A place in a file that is held in memory.
fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
