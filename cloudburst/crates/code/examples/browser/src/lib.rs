//! The receiver in a browser: one message after the other, from datagrams that JavaScript hands over, those of
//! WebTransport for one. `receiver.js` calls it, and `page.html` shows how.
//!
//! `cargo build --release --target wasm32-unknown-unknown` makes it; nothing else is needed to build or load it.
//! There is one receiver for each instance of the module.

use std::cell::RefCell;

use cloudburst_code::{Block, Decoder, MAX_BLOCKS, Received, Refused};

/// The longest message that is taken: what a sender states is no reason to make room for it.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The longest datagram that is taken.
const MAX_DATAGRAM_BYTES: usize = 1_500;

/// `receive` says: more are needed.
const MORE: u32 = 0;
/// `receive` says: the message is there.
const COMPLETE: u32 = 1;
/// `receive` says: it was of no use.
const REFUSED: u32 = 2;

struct Receiver {
    datagram: [u8; MAX_DATAGRAM_BYTES],
    decoder: Decoder<Vec<u8>, Vec<Block>>,
}

thread_local! {
    static RECEIVER: RefCell<Receiver> = RefCell::new(Receiver {
        datagram: [0; MAX_DATAGRAM_BYTES],
        // The message, and as much again for symbols that are sums, each as long as a datagram at most.
        decoder: Decoder::new(
            vec![0; 2 * MAX_MESSAGE_BYTES + MAX_DATAGRAM_BYTES],
            vec![Block::default(); MAX_BLOCKS],
        ),
    });
}

/// The address where a datagram is to be written before [`receive`].
#[unsafe(no_mangle)]
pub extern "C" fn datagram() -> *mut u8 {
    RECEIVER.with_borrow_mut(|it| it.datagram.as_mut_ptr())
}

/// The bytes that there are at that address.
#[unsafe(no_mangle)]
pub extern "C" fn datagram_bytes() -> usize {
    MAX_DATAGRAM_BYTES
}

/// Takes a datagram of so many bytes from there. A message that is not complete when a newer one begins is
/// given up.
#[unsafe(no_mangle)]
pub extern "C" fn receive(bytes: usize) -> u32 {
    RECEIVER.with_borrow_mut(|it| {
        let Some(datagram) = it.datagram.get(..bytes) else {
            return REFUSED;
        };
        let mut received = it.decoder.receive(datagram);
        if let Err(Refused::OtherMessage { given, expected }) = received
            && is_newer(given, expected)
        {
            it.decoder.reset();
            received = it.decoder.receive(datagram);
        }
        match received {
            Ok(Received::More) => MORE,
            Ok(Received::Complete) => COMPLETE,
            Err(_) => REFUSED,
        }
    })
}

/// The address of the message that is complete, and 0 if none is.
#[unsafe(no_mangle)]
pub extern "C" fn message() -> *const u8 {
    RECEIVER.with_borrow(|it| {
        it.decoder
            .message()
            .map_or(std::ptr::null(), <[u8]>::as_ptr)
    })
}

/// The bytes that it has.
#[unsafe(no_mangle)]
pub extern "C" fn message_bytes() -> usize {
    RECEIVER.with_borrow(|it| it.decoder.message().map_or(0, <[u8]>::len))
}

/// Numbers of messages begin again after 255: the nearer way around says which is the newer.
fn is_newer(id: u8, than: u8) -> bool {
    (1..128).contains(&id.wrapping_sub(than))
}
