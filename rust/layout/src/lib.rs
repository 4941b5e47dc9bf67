//! What a model's cache is: groups, pages, exact accounting, resume plans.
//!
//! A [`Layout`] is the byte-exact description of one architecture's cache in one engine's form.
//! [`resume::plan`] is the one implementation of "from where can this prompt go on": every hook
//! calls it. Nothing here does I/O.

pub mod account;
mod canonical;
mod check;
mod describe;
mod error;
mod fraction;
mod group;
mod layout;
pub mod registry;
pub mod resume;
mod usage;

pub use check::MAX_TOKENS;
pub use error::LayoutError;
pub use fraction::Fraction;
pub use group::{Group, Kind, OpenRows, PageShape, Read, Reads, Shard, StateRows};
pub use layout::{Area, GROUP_ALIGN, Layout, PAGE_ALIGN, Page, Replay};
pub use usage::{Usage, usage};
