//! The C interface as programs have it: over its boundary.

mod boundary;
