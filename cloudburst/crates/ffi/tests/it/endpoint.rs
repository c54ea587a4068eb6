//! An endpoint that tests call over the C interface.

use std::{
    ffi::{CStr, CString, c_char},
    ptr::{null, null_mut},
};

use cloudburst_ffi::*;

use cloudburst_status as Status;

/// Longer than anything here takes on a machine that stands still for seconds, and the lifetime of messages.
pub(crate) const PATIENCE_MS: u32 = 60_000;

pub(crate) fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub(crate) fn last_error() -> String {
    // SAFETY: it points to a text of this thread, which no call changes meanwhile.
    let text = unsafe { CStr::from_ptr(cloudburst_last_error()) };
    text.to_str().unwrap().to_owned()
}

/// A handle, freed in the end.
pub(crate) struct Endpoint(pub(crate) *mut cloudburst_endpoint);

// SAFETY: endpoints may be used by any thread.
unsafe impl Send for Endpoint {}
// SAFETY: and by several at once.
unsafe impl Sync for Endpoint {}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: it came from the library, and nobody uses it any more.
        unsafe { cloudburst_endpoint_free(self.0) };
    }
}

pub(crate) fn shared_key() -> CString {
    c(&format!("1:{}", "2a".repeat(32)))
}

impl Endpoint {
    pub(crate) fn bind() -> Self {
        let (mut config, mut endpoint) = (null_mut(), null_mut());
        // SAFETY: texts end with NUL, and places may be written to.
        unsafe {
            let key = shared_key();
            assert_eq!(
                cloudburst_config_shared_key(key.as_ptr(), &mut config),
                Status::Ok
            );
            let here = c("127.0.0.1");
            assert_eq!(
                cloudburst_config_set_local(config, here.as_ptr()),
                Status::Ok
            );
            let ports = c("any:2");
            assert_eq!(
                cloudburst_config_set_ports(config, ports.as_ptr()),
                Status::Ok
            );
            assert_eq!(
                cloudburst_config_set_early_requests(config, true),
                Status::Ok
            );
            assert_eq!(
                cloudburst_config_set_lifetime(config, PATIENCE_MS),
                Status::Ok
            );
            assert_eq!(cloudburst_endpoint_bind(config, &mut endpoint), Status::Ok);
            cloudburst_config_free(config);
        }
        Self(endpoint)
    }

    pub(crate) fn addresses(&self) -> CString {
        let mut buffer = vec![0 as c_char; 256];
        // SAFETY: the buffer is as long as is said.
        let needed =
            unsafe { cloudburst_endpoint_addresses(self.0, buffer.as_mut_ptr(), buffer.len()) };
        assert!(needed <= buffer.len());
        // SAFETY: the library has written a NUL.
        unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_owned()
    }

    pub(crate) fn connect(&self, remotes: &CStr) -> cloudburst_peer {
        let mut peer = cloudburst_peer::default();
        // SAFETY: the text ends with NUL.
        let status =
            unsafe { cloudburst_endpoint_connect(self.0, remotes.as_ptr(), null(), &mut peer) };
        assert_eq!(status, Status::Ok, "{}", last_error());
        peer
    }

    pub(crate) fn enqueue(&self, peer: cloudburst_peer, message: &[u8]) -> *mut cloudburst_sending {
        let mut sending = null_mut();
        // SAFETY: the message is as long as is said.
        let status = unsafe {
            cloudburst_enqueue(
                self.0,
                peer,
                message.as_ptr(),
                message.len(),
                null(),
                &mut sending,
            )
        };
        assert_eq!(status, Status::Ok, "{}", last_error());
        sending
    }

    pub(crate) fn receive(&self, timeout_ms: u32) -> (Status, *mut cloudburst_message) {
        let mut message = null_mut();
        // SAFETY: the place may be written to.
        let status = unsafe { cloudburst_receive(self.0, timeout_ms, &mut message) };
        (status, message)
    }
}
