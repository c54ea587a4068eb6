//! Messages on their way out.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use cloudburst::{
    Priority, Receipt, SendError, SendOptions,
    blocking::{BlockingEndpoint, Sending},
};

use super::{
    arguments::{LONGEST_WAIT, content, free, handle, patience, place, put, shared},
    endpoint::{cloudburst_endpoint, cloudburst_peer},
    status::{Failure, cloudburst_status, guard},
};

/// Priority of a message that waits until nothing else has something to send.
pub const CLOUDBURST_PRIORITY_BACKGROUND: i32 = -1;
/// Priority of most messages, and of those without options.
pub const CLOUDBURST_PRIORITY_NORMAL: i32 = 0;
/// Priority of a message that goes before all others.
pub const CLOUDBURST_PRIORITY_URGENT: i32 = 1;

/// Options of a message. All zero is what messages without options have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cloudburst_send_options {
    /// Abandons the message so many milliseconds after the call; 0 leaves that to the endpoint's lifetime.
    pub deadline_ms: u32,
    /// One of `CLOUDBURST_PRIORITY_BACKGROUND`, `_NORMAL` and `_URGENT`.
    pub priority: i32,
    /// Not 0: to take it twice does no harm, so that it goes on if its receiver is restarted.
    pub idempotent: u32,
}

/// Says how a message was delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cloudburst_receipt {
    /// Microseconds from the call until the receiver's stop arrived.
    pub completion_us: u64,
    /// Packets that the message has.
    pub symbols: u32,
    /// Packets that were sent.
    pub sent: u32,
}

/// A message under way, which somebody waits for.
pub struct cloudburst_sending {
    // Before the endpoint, whose thread has to outlive it.
    state: Mutex<State>,
    _endpoint: Arc<BlockingEndpoint>,
}

enum State {
    UnderWay(Sending),
    Ended(Result<Receipt, SendError>),
}

impl cloudburst_sending {
    /// Fate of the message; nothing if it is under way still.
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<Receipt, SendError>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::UnderWay(sending) = &mut *state {
            let ended = sending.wait_timeout(timeout.unwrap_or(LONGEST_WAIT))?;
            *state = State::Ended(ended);
        }
        match &*state {
            State::UnderWay(_) => None,
            State::Ended(result) => Some(result.clone()),
        }
    }
}

impl From<Receipt> for cloudburst_receipt {
    fn from(receipt: Receipt) -> Self {
        Self {
            completion_us: u64::try_from(receipt.completion.as_micros()).unwrap_or(u64::MAX),
            symbols: receipt.symbols,
            sent: receipt.sent,
        }
    }
}

/// Sends a message and waits until the peer has it, or it is abandoned. While as much is under way as the
/// quotas allow, it waits for its turn first. `options` and `receipt` may be NULL.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `message` points to `length` bytes, or is NULL for none;
/// `options` is NULL or may be read, `receipt` NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_send(
    endpoint: *const cloudburst_endpoint,
    peer: cloudburst_peer,
    message: *const u8,
    length: usize,
    options: *const cloudburst_send_options,
    receipt: *mut cloudburst_receipt,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (endpoint, message, options) = unsafe {
            (
                shared(endpoint, "endpoint")?,
                content(message, length)?,
                send_options(options)?,
            )
        };
        let message = Bytes::copy_from_slice(message);
        let delivered = endpoint.inner.send_with(peer.into(), message, options)?;
        // SAFETY: the caller says so.
        unsafe { put(receipt, delivered.into()) };
        Ok(())
    })
}

/// Starts to send a message, and returns something to wait for it by. It waits itself only while as much
/// is under way as the quotas allow. `options` may be NULL.
///
/// # Safety
///
/// As for `cloudburst_send`; `sending` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_enqueue(
    endpoint: *const cloudburst_endpoint,
    peer: cloudburst_peer,
    message: *const u8,
    length: usize,
    options: *const cloudburst_send_options,
    sending: *mut *mut cloudburst_sending,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (sending, endpoint, message, options) = unsafe {
            (
                place(sending, "sending")?,
                shared(endpoint, "endpoint")?,
                content(message, length)?,
                send_options(options)?,
            )
        };
        let message = Bytes::copy_from_slice(message);
        let inner = &endpoint.inner;
        let under_way = inner.enqueue_with(peer.into(), message, options)?;
        *sending = handle(cloudburst_sending {
            state: Mutex::new(State::UnderWay(under_way)),
            _endpoint: Arc::clone(inner),
        });
        Ok(())
    })
}

/// Waits until the peer has the message, or it is abandoned, but not longer than so many milliseconds:
/// then it returns `CLOUDBURST_STATUS_PENDING`, and may be called again. Once the message has ended it
/// always returns the same. `receipt` may be NULL.
///
/// # Safety
///
/// `sending` is NULL or came from this library; `receipt` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_sending_wait(
    sending: *const cloudburst_sending,
    timeout_ms: u32,
    receipt: *mut cloudburst_receipt,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let sending = unsafe { shared(sending, "sending") }?;
        let ended = sending.wait(patience(timeout_ms));
        let delivered = ended.ok_or_else(Failure::pending)??;
        // SAFETY: the caller says so.
        unsafe { put(receipt, delivered.into()) };
        Ok(())
    })
}

/// Frees it. A message that is still under way is cancelled: the peer may have it or get it all the same.
///
/// # Safety
///
/// `sending` is NULL, or came from this library, was not freed before, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_sending_free(sending: *mut cloudburst_sending) {
    // SAFETY: the caller says so.
    unsafe { free(sending) };
}

/// Frees it and lets the message go its way, as long as its endpoint lives.
///
/// # Safety
///
/// As for `cloudburst_sending_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_sending_detach(sending: *mut cloudburst_sending) {
    if sending.is_null() {
        return;
    }
    // A panic has nowhere to go from here.
    let _ = guard(|| {
        // SAFETY: the caller says so: it came from `handle`, and is nobody else's any more.
        let sending = unsafe { Box::from_raw(sending) };
        let state = sending.state.into_inner();
        if let State::UnderWay(sending) = state.unwrap_or_else(PoisonError::into_inner) {
            sending.detach();
        }
        Ok(())
    });
}

/// Takes options; NULL are the defaults.
///
/// # Safety
///
/// `options` is NULL or may be read.
pub(crate) unsafe fn send_options(
    options: *const cloudburst_send_options,
) -> Result<SendOptions, Failure> {
    // SAFETY: the caller says so.
    let Some(options) = (unsafe { options.as_ref() }) else {
        return Ok(SendOptions::new());
    };
    let priority = match options.priority {
        CLOUDBURST_PRIORITY_BACKGROUND => Priority::Background,
        CLOUDBURST_PRIORITY_NORMAL => Priority::Normal,
        CLOUDBURST_PRIORITY_URGENT => Priority::Urgent,
        other => {
            let reason = format!("priority is {other}; it must be -1, 0 or 1");
            return Err(Failure::new(cloudburst_status::InvalidSetting, reason));
        }
    };
    let taken = SendOptions::new()
        .with_priority(priority)
        .with_idempotent(options.idempotent != 0);
    Ok(match options.deadline_ms {
        0 => taken,
        after => taken.with_deadline(Duration::from_millis(after.into())),
    })
}
