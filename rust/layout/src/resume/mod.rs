//! From where a prompt can go on, what to read for that, what to recompute, what it costs, and what
//! to keep so that it can.

mod plan;
mod policy;
pub mod replayed;
mod stored;

pub use plan::{Costs, Have, Mode, Plan, plan};
pub use policy::{Kept, Policy, Windows, keep};

#[cfg(test)]
mod tests;
