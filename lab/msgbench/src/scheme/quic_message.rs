//! Parts that QUIC schemes share, whichever library they use: sockets, and a message as a stream
//! has it.
//!
//! A request starts with the length that the answer is to have. The rest of both is zeros.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use socket2::SockRef;

use super::REQUEST_BYTES;

/// Socket buffers as quinn's documentation advises: the default holds some 100 packets.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;
/// Zeros, of which all payload consists.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A socket with buffers that do not overflow.
pub(super) fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    SockRef::from(&socket).set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    Ok(socket)
}

/// Asks for an answer of so many bytes.
pub(super) fn request(answer_bytes: u32) -> [u8; REQUEST_BYTES] {
    let mut request = [0; REQUEST_BYTES];
    request[..4].copy_from_slice(&answer_bytes.to_be_bytes());
    request
}

/// The answer to a request, in parts.
pub(super) fn answer(request: [u8; REQUEST_BYTES]) -> impl Iterator<Item = &'static [u8]> {
    let [a, b, c, d, ..] = request;
    let mut left = u32::from_be_bytes([a, b, c, d]) as usize;
    std::iter::from_fn(move || {
        let part = left.min(ZEROS.len());
        left -= part;
        (part > 0).then(|| &ZEROS[..part])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_answer() {
        for bytes in [0, 1, 65_536, 65_537, 1_000_000] {
            let parts = answer(request(bytes));
            assert_eq!(parts.map(<[u8]>::len).sum::<usize>(), bytes as usize);
        }
    }
}
