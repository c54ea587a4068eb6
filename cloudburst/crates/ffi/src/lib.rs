//! The C interface of Cloudburst: what `include/cloudburst.h` declares.
//!
//! Programs in other languages link the library `cloudburst_ffi` and include that header, which
//! `cargo xtask header` makes from this source. Names are those of the header. From Rust the crate
//! `cloudburst-fec` is what to use.
//!
//! # Rules
//!
//! - **Ownership.** What a call returns through a pointer to a pointer belongs to the caller, who gives it
//!   back with the `_free` function of its kind, once. Bytes and texts that are handed in are copied; those
//!   that come from `cloudburst_message_bytes` live as long as the message. NULL may be freed.
//! - **Threads.** An endpoint has a thread of its own and may be used by any number of threads at once;
//!   messages and settings by one at a time. Calls that wait block the thread that calls, and nothing else.
//!   Before an endpoint is freed, no other thread may be in a call with it: `cloudburst_endpoint_close` has
//!   calls that wait return.
//! - **Errors.** Every call that can fail returns a `cloudburst_status`, of which 0 is success.
//!   `cloudburst_status_text` says in general what a code means, and `cloudburst_last_error` what went
//!   wrong in the last call of this thread that failed, with values and remedies. Results are written
//!   only on success; pointers to handles are set to NULL otherwise.
//! - **Panics** do not cross the boundary: a call in which one happens returns
//!   `CLOUDBURST_STATUS_PANICKED`, and the endpoint is best closed then. That takes a library whose panics
//!   unwind, as Cargo builds it unless told otherwise: with `panic = "abort"` they end the process.
//! - **Pointers** that must not be NULL are checked. That a pointer which is not NULL is right, the
//!   library cannot know: see "Safety" of each function.
//! - **Processes.** After `fork` a child must not use what its parent has made, and the library must not be
//!   unloaded while an endpoint lives, nor right after the last was freed: its thread ends by itself, a
//!   moment later.

#![allow(non_camel_case_types, reason = "names are those of the header")]

mod arguments;
mod config;
mod endpoint;
mod keys;
mod message;
mod sending;
mod status;

use std::ffi::c_char;

pub use self::{
    config::{
        cloudburst_config, cloudburst_config_allow, cloudburst_config_free,
        cloudburst_config_key_pair, cloudburst_config_set_dscp,
        cloudburst_config_set_early_requests, cloudburst_config_set_lifetime,
        cloudburst_config_set_local, cloudburst_config_set_max_message_bytes,
        cloudburst_config_set_ports, cloudburst_config_shared_key,
    },
    endpoint::{
        cloudburst_close_report, cloudburst_endpoint, cloudburst_endpoint_addresses,
        cloudburst_endpoint_bind, cloudburst_endpoint_close, cloudburst_endpoint_connect,
        cloudburst_endpoint_forget, cloudburst_endpoint_free, cloudburst_peer,
    },
    keys::{
        CLOUDBURST_KEY_TEXT_BYTES, cloudburst_key_pair_generate, cloudburst_public_key,
        cloudburst_shared_key_generate,
    },
    message::{
        cloudburst_fail, cloudburst_message, cloudburst_message_bytes, cloudburst_message_free,
        cloudburst_message_is_cancelled, cloudburst_message_is_request, cloudburst_message_length,
        cloudburst_message_peer, cloudburst_message_sender_key, cloudburst_receive,
        cloudburst_reply, cloudburst_request,
    },
    sending::{
        CLOUDBURST_PRIORITY_BACKGROUND, CLOUDBURST_PRIORITY_NORMAL, CLOUDBURST_PRIORITY_URGENT,
        cloudburst_enqueue, cloudburst_receipt, cloudburst_send, cloudburst_send_options,
        cloudburst_sending, cloudburst_sending_detach, cloudburst_sending_free,
        cloudburst_sending_wait,
    },
    status::{cloudburst_last_error, cloudburst_status, cloudburst_status_text},
};

/// Waits without an end, where a call takes a time in milliseconds.
pub const CLOUDBURST_FOREVER: u32 = u32::MAX;

/// Returns the version of the library, such as "0.1.0". The text is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn cloudburst_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
