//! Numbers to bytes: formats, scale rules, SIMD levels, engine records and pages.
