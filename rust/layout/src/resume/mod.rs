//! From where a prompt can go on, what to read for that, what to recompute, and what it costs.

mod plan;
mod stored;

pub use plan::{Costs, Have, Mode, Plan, plan};
