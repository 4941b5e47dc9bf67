//! A device in memory that fails as told: for tests of everything above devices.
//!
//! [`FaultDisk`] is the medium and outlives its devices; [`FaultDevice`] is one life of a process
//! on it. All chance comes from seeds and nothing runs on its own: operations happen inside
//! `complete`, so a single-threaded test replays exactly.

mod apply;
mod content;
mod device;
mod disk;
mod plan;
mod random;

pub use device::FaultDevice;
pub use disk::FaultDisk;
pub use plan::{Fault, FaultPlan, Rule};
