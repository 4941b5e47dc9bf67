//! What goes wrong, and when.

use crate::io::device::{File, OpKind};

/// One way to fail.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Nothing is done, and this error number is the answer.
    Errno(i32),
    /// A part is done, then this error number is the answer.
    Broken(i32),
    /// Done in pieces, with the other operations in between. Not an error.
    Short,
    /// A part is done and success is the answer.
    Partial,
    /// Nothing is done and success is the answer. Of a sync: a drive that lies.
    Lost,
    /// One bit of what is read or written changes on the way.
    FlipBit,
    /// Goes to the place this many bytes further; before the start counts as the start.
    Misdirect(i64),
    /// Is not done before [`super::FaultDevice::release`]. Of a synchronous call: no fault.
    Stuck,
}

/// A fault and the operations that it befalls.
#[derive(Copy, Clone, Debug)]
pub struct Rule {
    /// On this file; on any if none.
    pub file: Option<File>,
    /// Of this kind; of any if none.
    pub kind: Option<OpKind>,
    /// Matching operations that go well first.
    pub skip: u64,
    /// Matching operations that fail after these.
    pub count: u64,
    /// How they fail.
    pub fault: Fault,
}

impl Rule {
    /// The next operation of this kind on this file.
    pub const fn once(file: File, kind: OpKind, fault: Fault) -> Rule {
        Rule { file: Some(file), kind: Some(kind), skip: 0, count: 1, fault }
    }

    /// All operations of this kind on this file.
    pub const fn always(file: File, kind: OpKind, fault: Fault) -> Rule {
        Rule { count: u64::MAX, ..Rule::once(file, kind, fault) }
    }

    /// The same, after `skip` more that go well.
    #[must_use]
    pub const fn after(self, skip: u64) -> Rule {
        Rule { skip, ..self }
    }

    /// The fault of an operation, if it is one of those; counts it in any case.
    pub(super) fn befall(&mut self, file: File, kind: OpKind) -> Option<Fault> {
        let matches =
            self.file.is_none_or(|only| only == file) && self.kind.is_none_or(|only| only == kind);
        if !matches {
            None
        } else if self.skip > 0 {
            self.skip -= 1;
            None
        } else if self.count > 0 {
            self.count -= u64::from(self.count < u64::MAX);
            Some(self.fault)
        } else {
            None
        }
    }
}

/// What a device does wrong, all by the seed.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// Source of all chance: order, pieces, bits.
    pub seed: u64,
    /// Unit of direct files, in bytes.
    pub unit: u32,
    /// Most operations in flight.
    pub capacity: usize,
    /// Operations are done in any order; else in that of submission.
    pub reorder: bool,
    /// Whether growing sets space aside; else files grow sparse.
    pub allocates: bool,
    /// Bytes that all files together may grow to, where growing sets space aside.
    pub space: u64,
    /// Faults: of those that an operation falls under, the first.
    pub rules: Vec<Rule>,
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan {
            seed: 0,
            unit: crate::io::MIN_UNIT,
            capacity: 256,
            reorder: true,
            allocates: true,
            space: u64::MAX,
            rules: Vec::new(),
        }
    }
}
