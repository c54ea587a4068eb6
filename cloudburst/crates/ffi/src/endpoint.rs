//! Endpoints and their peers.

use std::{ffi::c_char, sync::Arc};

use cloudburst::{ClosedMessages, PeerId, PublicKey, Remotes, blocking::BlockingEndpoint};

use super::{
    arguments::{free, handle, patience, place, put, put_text, shared, text},
    config::cloudburst_config,
    status::{cloudburst_status, guard},
};

/// An endpoint on UDP sockets, with a thread of its own.
pub struct cloudburst_endpoint {
    /// Messages under way keep it, too: they can be waited for after it was freed.
    pub(crate) inner: Arc<BlockingEndpoint>,
}

/// Somebody whom messages are exchanged with, as one endpoint knows it: at another endpoint it stands for
/// nobody. Two are of the same peer if all three words are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cloudburst_peer {
    /// The words of the id, of which none means anything by itself.
    pub words: [u32; 3],
}

/// Counts what became of messages that were under way when an endpoint was closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct cloudburst_close_report {
    /// Messages that their receivers have.
    pub delivered_messages: u64,
    /// Bytes of the messages that their receivers have.
    pub delivered_bytes: u64,
    /// Messages that their receivers do not have.
    pub lost_messages: u64,
    /// Bytes of the messages that their receivers do not have.
    pub lost_bytes: u64,
    /// Messages of which nobody has said whether they arrived.
    pub unknown_messages: u64,
    /// Bytes of the messages of which nobody has said whether they arrived.
    pub unknown_bytes: u64,
}

impl From<PeerId> for cloudburst_peer {
    fn from(peer: PeerId) -> Self {
        Self {
            words: peer.to_words(),
        }
    }
}

impl From<cloudburst_peer> for PeerId {
    fn from(peer: cloudburst_peer) -> Self {
        Self::from_words(peer.words)
    }
}

/// Binds sockets with these settings and starts an endpoint. The settings may be freed or used again.
///
/// # Safety
///
/// `config` is NULL or came from this library; `endpoint` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_bind(
    config: *const cloudburst_config,
    endpoint: *mut *mut cloudburst_endpoint,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (config, endpoint) =
            unsafe { (shared(config, "config"), place(endpoint, "endpoint")?) };
        let inner = BlockingEndpoint::bind(config?.build()?)?;
        *endpoint = handle(cloudburst_endpoint {
            inner: Arc::new(inner),
        });
        Ok(())
    })
}

/// Writes the addresses that the endpoint is bound to, with commas between and a NUL at the end:
/// "127.0.0.1:4433,127.0.0.1:4434". Returns the bytes that this takes; if `size` is less, an empty text is
/// written. Returns 0 if `endpoint` is NULL.
///
/// `cloudburst_endpoint_connect` takes them where `cloudburst_config_set_local` has named addresses. Without,
/// the endpoint is bound to all of the machine, which `0.0.0.0` and `[::]` stand for: nobody can send there,
/// and only the ports are of use.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `buffer` is NULL or may be written to for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_addresses(
    endpoint: *const cloudburst_endpoint,
    buffer: *mut c_char,
    size: usize,
) -> usize {
    let mut needed = 0;
    guard(|| {
        // SAFETY: the caller says so.
        let endpoint = unsafe { shared(endpoint, "endpoint") }?;
        let addresses = endpoint.inner.local_addrs();
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        // SAFETY: the caller says so.
        needed = unsafe { put_text(buffer, size, &addresses.join(",")) };
        Ok(())
    });
    needed
}

/// Makes a peer known at these addresses: "host:4433", "192.0.2.7:4433-4436", `"[2001:db8::7]:4433"`, or
/// several with commas between, all of one machine. Names are looked up, which may take seconds. Nothing
/// is sent yet. `public_key` is the peer's, and NULL where all ends share a key.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `remotes` and `public_key` are NULL or texts that end
/// with NUL; `peer` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_connect(
    endpoint: *const cloudburst_endpoint,
    remotes: *const c_char,
    public_key: *const c_char,
    peer: *mut cloudburst_peer,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let (endpoint, remotes) =
            unsafe { (shared(endpoint, "endpoint")?, text(remotes, "remotes")?) };
        let remotes = remotes.parse::<Remotes>()?.resolve()?;
        let id = if public_key.is_null() {
            endpoint.inner.connect(remotes)?
        } else {
            // SAFETY: the caller says so.
            let key: PublicKey = unsafe { text(public_key, "public_key") }?.trim().parse()?;
            endpoint.inner.connect_to(key, remotes)?
        };
        // SAFETY: the caller says so.
        unsafe { put(peer, id.into()) };
        Ok(())
    })
}

/// Forgets a peer: what is under way to it is abandoned, and its memory freed. Somebody who is gone
/// already is no error.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_forget(
    endpoint: *const cloudburst_endpoint,
    peer: cloudburst_peer,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let endpoint = unsafe { shared(endpoint, "endpoint") }?;
        Ok(endpoint.inner.forget(peer.into())?)
    })
}

/// Takes nothing new, waits until what is under way is delivered or abandoned, but not longer than so
/// many milliseconds, tells the peers, and ends. All calls that wait on this endpoint, in whichever
/// threads, return `CLOUDBURST_STATUS_CLOSED` then. The handle is still to be freed. `report` may be NULL.
/// `CLOUDBURST_FOREVER` waits for two minutes at most, which is longer than any message lives.
///
/// # Safety
///
/// `endpoint` is NULL or came from this library; `report` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_close(
    endpoint: *const cloudburst_endpoint,
    within_ms: u32,
    report: *mut cloudburst_close_report,
) -> cloudburst_status {
    guard(|| {
        // SAFETY: the caller says so.
        let endpoint = unsafe { shared(endpoint, "endpoint") }?;
        // A message waits for its turn for a minute at most, and lives for one more.
        let within = patience(within_ms).unwrap_or(cloudburst::MAX_LIFETIME * 2);
        let closed = endpoint.inner.close(within);
        let [delivered, lost, unknown] = [closed.delivered, closed.lost, closed.unknown].map(
            |ClosedMessages {
                 messages, bytes, ..
             }| (messages, bytes),
        );
        let counted = cloudburst_close_report {
            delivered_messages: delivered.0,
            delivered_bytes: delivered.1,
            lost_messages: lost.0,
            lost_bytes: lost.1,
            unknown_messages: unknown.0,
            unknown_bytes: unknown.1,
        };
        // SAFETY: the caller says so.
        unsafe { put(report, counted) };
        Ok(())
    })
}

/// Frees an endpoint. One that was not closed ends at once, unless messages that were enqueued are
/// still held, and what is under way is cancelled. No other thread may be in a call with it. The
/// endpoint's own thread is not waited for, and may run for a moment longer.
///
/// # Safety
///
/// `endpoint` is NULL, or came from this library, was not freed before, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cloudburst_endpoint_free(endpoint: *mut cloudburst_endpoint) {
    // SAFETY: the caller says so.
    unsafe { free(endpoint) };
}
