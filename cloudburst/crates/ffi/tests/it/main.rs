//! The C interface as programs have it: from C, compiled by the system's compiler, and over its boundary.

mod boundary;
#[cfg(target_os = "linux")]
mod c_program;
mod endpoint;
mod messages;
#[cfg(target_os = "linux")]
mod python;
