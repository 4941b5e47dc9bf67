//! The store: one handle over the host tier and the disk tier.
//!
//! All bookkeeping is one [`state::State`] behind one mutex; payload bytes are copied, read and
//! written without it. One thread per device (`writer`) takes completions, writes behind and
//! commits table pages. Callers wait for their own reads and verify them themselves.

mod batch;
mod blocks;
mod care;
mod check;
mod clear;
mod close;
mod config;
mod counters;
mod create;
mod drain;
mod evict;
mod existing;
mod flush;
mod guard;
mod inspect;
mod lease;
mod manifest;
mod matching;
mod meta;
mod namespace;
mod open;
mod opener;
mod prefetch;
mod put;
mod put_parts;
mod queue;
mod read;
mod recover;
mod registry;
mod room;
mod state;
mod stats;
mod view;
mod writer;

pub use batch::{Ack, Batch, Reason, Status};
pub use blocks::HeldBlocks;
pub use check::{CheckReport, Damage};
pub use config::{Options, Verify};
pub use counters::{Counters, MissReason};
pub use guard::Explanation;
pub use inspect::{Inspection, NamespaceInfo, SegmentInfo};
pub use lease::{Item, Lease};
pub use manifest::Manifest;
pub use matching::{BlockAnswer, Match};
pub use namespace::{Epochs, Namespace, NamespaceOptions};
pub use open::{Recovered, Store};
pub use put::{Object, PutOptions};
pub use stats::{DiskStats, HostStats, Stats};
pub use view::View;
