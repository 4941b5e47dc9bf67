//! io
pub mod device;
pub mod error;
