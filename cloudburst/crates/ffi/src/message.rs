//! Messages that have arrived, requests, and replies.

use std::ffi::c_char;

use bytes::Bytes;
use cloudburst::{Failure as NoReply, PeerId, Received};

use super::{
    arguments::{
        LONGEST_WAIT, content, free, handle, patience, place, put, put_text, shared, text,
    },
    endpoint::{cloudburst_endpoint, cloudburst_peer},
    sending::{cloudburst_receipt, cloudburst_send_options, send_options},
    status::{Failure, cloudburst_status, guard},
};

/// A message or request that has arrived, or the reply to a request.
pub struct cloudburst_message(Kind);

enum Kind {
    Received(Received),
    Reply { peer: PeerId, message: Bytes },
}

impl cloudburst_message {
    fn content(&self) -> &[u8] {
        match &self.0 {
            Kind::Received(received) => &received.message,
            Kind::Reply { message, .. } => message,
        }
    }

    fn received(&self) -> Result<&Received, Failure> {
        match &self.0 {
            Kind::Received(received) => Ok(received),
            Kind::Reply { .. } => Err(Failure::new(
                cloudburst_status::NotToBeAnswered,
                "this is a reply, and nobody waits for an answer to it",
            )),
        }
    }
}

/// Waits for the next message or request, but not longer than so many milliseconds: then it returns
/// `CLOUDBURST_STATUS_PENDING`. Several threads may wait at once; each message goes to one of them.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `message` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_receive(
    endpoint: *const cloudburst_endpoint,
    timeout_ms: u32,
    message: *mut *mut cloudburst_message,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (message, endpoint) =
            unsafe { (place(message, "message")?, shared(endpoint, "endpoint")?) };
        let received = match patience(timeout_ms) {
            None => endpoint.inner.recv()?,
            Some(timeout) => {
                let received = endpoint.inner.recv_timeout(timeout)?;
                received.ok_or_else(Failure::pending)?
            }
        };
        *message = handle(cloudburst_message(Kind::Received(received)));
        Ok(())
    })
}

/// Sends a request and waits for the reply, for so many milliseconds in all; without an end only if that
/// is `CLOUDBURST_FOREVER`. `CLOUDBURST_STATUS_NO_REPLY` means that the peer has it, and says there is no
/// reply. `options` may be NULL.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `message` points to `length` bytes, or is NULL for none;
/// `options` is NULL or may be read; `reply` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_request(
    endpoint: *const cloudburst_endpoint,
    peer: cloudburst_peer,
    message: *const u8,
    length: usize,
    timeout_ms: u32,
    options: *const cloudburst_send_options,
    reply: *mut *mut cloudburst_message,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (reply, endpoint, message, options) = unsafe {
            (
                place(reply, "reply")?,
                shared(endpoint, "endpoint")?,
                content(message, length)?,
                send_options(options)?,
            )
        };
        let message = Bytes::copy_from_slice(message);
        let timeout = patience(timeout_ms).unwrap_or(LONGEST_WAIT);
        let peer = peer.into();
        let message = endpoint
            .inner
            .request_with(peer, message, timeout, options)?;
        *reply = handle(cloudburst_message(Kind::Reply { peer, message }));
        Ok(())
    })
}

/// Answers a request, and waits until the peer has the answer. The request is still to be freed. `receipt`
/// may be NULL.
///
/// # Safety
///
/// `endpoint` and `request` are NULL or came from this library; `message` points to `length` bytes, or is
/// NULL for none; `receipt` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_reply(
    endpoint: *const cloudburst_endpoint,
    request: *const cloudburst_message,
    message: *const u8,
    length: usize,
    receipt: *mut cloudburst_receipt,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (endpoint, request, message) = unsafe {
            (
                shared(endpoint, "endpoint")?,
                shared(request, "request")?.received()?,
                content(message, length)?,
            )
        };
        let message = Bytes::copy_from_slice(message);
        let delivered = endpoint.inner.reply(request, message)?;
        // SAFETY: the caller says so.
        unsafe { put(receipt, delivered.into()) };
        Ok(())
    })
}

/// Answers a request that it is refused, in a few words that its sender gets, and waits for nothing. A
/// request that is freed without an answer is answered that there is none.
///
/// # Safety
///
/// `endpoint` and `request` are NULL or came from this library; `reason` is NULL or a text that ends with
/// NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_fail(
    endpoint: *const cloudburst_endpoint,
    request: *const cloudburst_message,
    reason: *const c_char,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (endpoint, request, reason) = unsafe {
            (
                shared(endpoint, "endpoint")?,
                shared(request, "request")?.received()?,
                text(reason, "reason")?,
            )
        };
        Ok(endpoint.inner.fail(request, NoReply::refused(reason))?)
    })
}

/// Returns the bytes of a message, which live until it is freed. Of an empty message it is not NULL, and
/// not to be read.
///
/// # Safety
///
/// `message` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_bytes(message: *const cloudburst_message) -> *const u8 {
    // SAFETY: the caller says so.
    let message = unsafe { message.as_ref() };
    message.map_or(std::ptr::null(), |it| it.content().as_ptr())
}

/// Returns the number of bytes of a message.
///
/// # Safety
///
/// `message` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_length(message: *const cloudburst_message) -> usize {
    // SAFETY: the caller says so.
    let message = unsafe { message.as_ref() };
    message.map_or(0, |it| it.content().len())
}

/// Returns the peer that a message came from; of NULL, an id that stands for nobody.
///
/// # Safety
///
/// `message` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_peer(
    message: *const cloudburst_message,
) -> cloudburst_peer {
    // SAFETY: the caller says so.
    match unsafe { message.as_ref() }.map(|it| &it.0) {
        None => cloudburst_peer::default(),
        Some(Kind::Received(received)) => received.peer.into(),
        Some(Kind::Reply { peer, .. }) => (*peer).into(),
    }
}

/// Writes the public key of whoever sent the message, with a NUL at the end, where key pairs say who it is.
/// Returns the bytes that this takes, and 0 where there is none; if `size` is less, an empty text is
/// written.
///
/// # Safety
///
/// `message` is NULL or came from this library; `buffer` is NULL or may be written to for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_sender_key(
    message: *const cloudburst_message,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller says so.
    let key = match unsafe { message.as_ref() }.map(|it| &it.0) {
        Some(Kind::Received(received)) => received.identity,
        _ => None,
    };
    // SAFETY: the caller says so.
    key.map_or(0, |key| unsafe { put_text(buffer, size, &key.to_string()) })
}

/// Returns true where the sender of a message waits for a reply.
///
/// # Safety
///
/// `message` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_is_request(message: *const cloudburst_message) -> bool {
    // SAFETY: the caller says so.
    let message = unsafe { message.as_ref() };
    message.is_some_and(|it| it.received().is_ok_and(Received::is_request))
}

/// Returns true where this is a request that its sender has given up: nobody waits for a reply.
///
/// # Safety
///
/// `message` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_is_cancelled(
    message: *const cloudburst_message,
) -> bool {
    // SAFETY: the caller says so.
    let message = unsafe { message.as_ref() };
    message.is_some_and(|it| it.received().is_ok_and(Received::is_cancelled))
}

/// Frees a message. A request that was not answered is answered that there is no reply.
///
/// # Safety
///
/// `message` is NULL, or came from this library, was not freed before, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_message_free(message: *mut cloudburst_message) {
    // SAFETY: the caller says so.
    unsafe { free(message) };
}
