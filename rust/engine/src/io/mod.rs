//! Devices: where payloads and metadata go, behind one completion-based interface.
//!
//! [`PsyncDevice`] is threads over `pread` and `pwrite`, which every system allows;
//! [`FaultDevice`] is memory that fails as told, by a seed. Both keep [`Device`]'s promises, and
//! neither knows what the bytes mean.

mod bounce;
pub mod device;
pub mod error;
pub mod fault;
mod files;
mod lock;
pub mod psync;
mod transfer;

pub use crate::host::fork;
pub use device::{Completion, Device, File, Grown, Op, OpKind, PathInUse, Priority};
pub use error::{IoError, IoErrorKind, OpenError};
pub use fault::{Fault, FaultDevice, FaultDisk, FaultPlan, Rule};
pub use psync::{OpenOptions, PsyncDevice};

/// Smallest unit of direct I/O that the engine uses, whatever the device would take.
pub const MIN_UNIT: u32 = 4096;
