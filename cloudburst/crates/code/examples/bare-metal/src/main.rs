//! A receiver without an operating system, without allocation: datagrams come by a serial line, each behind its
//! length, as the example `sender` writes them, and messages go out by it, a line each.
//!
//! `cargo build --release --target thumbv7em-none-eabihf` makes it for a Cortex-M4. On the board of qemu:
//!
//! ```sh
//! qemu-system-arm -machine mps2-an386 -display none -monitor none -serial stdio \
//!     -semihosting-config enable=on,target=native \
//!     -kernel target/thumbv7em-none-eabihf/release/bare-metal-receiver < datagrams > messages
//! ```

#![no_std]
#![no_main]

mod uart;

use core::panic::PanicInfo;

use cloudburst_code::{Block, Decoder, Received, Refused};
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};

use crate::uart::Uart;

/// The longest message that is taken.
const MAX_MESSAGE_BYTES: usize = 12 << 10;
/// The longest datagram that is taken.
const MAX_DATAGRAM_BYTES: usize = 1_500;
/// The message, and as much again for symbols that are sums, each as long as a datagram at most.
const DECODER_BYTES: usize = 2 * MAX_MESSAGE_BYTES + MAX_DATAGRAM_BYTES;

#[entry]
fn main() -> ! {
    static mut MEMORY: [u8; DECODER_BYTES] = [0; DECODER_BYTES];
    static mut DATAGRAM: [u8; MAX_DATAGRAM_BYTES] = [0; MAX_DATAGRAM_BYTES];

    let peripherals = cortex_m::Peripherals::take().expect("nobody has taken them before");
    let mut uart = Uart::new(&peripherals);
    // One block holds the messages of up to 64 datagrams.
    let mut decoder = Decoder::new(MEMORY, [Block::default()]);
    while let Some(datagram) = read_datagram(&mut uart, DATAGRAM) {
        let mut received = decoder.receive(datagram);
        if let Err(Refused::OtherMessage { given, expected }) = received
            && is_newer(given, expected)
        {
            decoder.reset();
            received = decoder.receive(datagram);
        }
        if received == Ok(Received::Complete) {
            let message = decoder.message().unwrap_or_default();
            message
                .iter()
                .chain(b"\n")
                .for_each(|byte| uart.write(*byte));
        }
    }
    debug::exit(debug::EXIT_SUCCESS);
    loop {}
}

/// The next datagram of the line, or nothing at its end, which a length of 0 says.
fn read_datagram<'a>(uart: &mut Uart, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_be_bytes([uart.read(), uart.read()]));
    for index in 0..length {
        let byte = uart.read();
        if let Some(place) = buffer.get_mut(index) {
            *place = byte;
        }
    }
    // One that is too long is none, which the decoder refuses.
    (length > 0).then(|| buffer.get(..length).unwrap_or_default())
}

/// Numbers of messages begin again after 255: the nearer way around says which is the newer.
fn is_newer(id: u8, than: u8) -> bool {
    (1..128).contains(&id.wrapping_sub(than))
}

#[panic_handler]
fn panic(reason: &PanicInfo<'_>) -> ! {
    hprintln!("{}", reason);
    debug::exit(debug::EXIT_FAILURE);
    loop {}
}
