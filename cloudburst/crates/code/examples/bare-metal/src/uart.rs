//! The serial line: the first UART of ARM's MPS2 boards (CMSDK APB UART).

use core::ptr;

const BASE: usize = 0x4000_4000;
const DATA: *mut u32 = BASE as *mut u32;
const STATE: *const u32 = (BASE + 0x04) as *const u32;
const CONTROL: *mut u32 = (BASE + 0x08) as *mut u32;
const BAUD_DIVIDER: *mut u32 = (BASE + 0x10) as *mut u32;

const TRANSMIT_FULL: u32 = 1 << 0;
const RECEIVE_FULL: u32 = 1 << 1;
const BOTH_ENABLED: u32 = 0b11;
/// The least that the device takes.
const FASTEST: u32 = 16;

/// The line. There is one.
pub(crate) struct Uart(());

impl Uart {
    /// Switches it on. `_all` shows that nobody else has the board's devices.
    pub(crate) fn new(_all: &cortex_m::Peripherals) -> Self {
        // SAFETY: these are the device's registers, of 32 bits each.
        unsafe {
            ptr::write_volatile(BAUD_DIVIDER, FASTEST);
            ptr::write_volatile(CONTROL, BOTH_ENABLED);
        }
        Self(())
    }

    /// Waits for a byte.
    pub(crate) fn read(&mut self) -> u8 {
        while state() & RECEIVE_FULL == 0 {}
        // SAFETY: the register of what was received; reading makes room for the next byte.
        unsafe { ptr::read_volatile(DATA) as u8 }
    }

    /// Waits for room for a byte, and sends it.
    pub(crate) fn write(&mut self, byte: u8) {
        while state() & TRANSMIT_FULL != 0 {}
        // SAFETY: the register of what is to be sent.
        unsafe { ptr::write_volatile(DATA, byte.into()) }
    }
}

fn state() -> u32 {
    // SAFETY: the register of what is full; reading it changes nothing.
    unsafe { ptr::read_volatile(STATE) }
}
