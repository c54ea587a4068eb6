//! The erasure code, a fountain code for forward error correction: an [`Encoder`] and a [`Decoder`] for one message.
//!
//! ```
//! use cloudburst_code::{Decoder, Encoder, Received, Schedule, Shape};
//!
//! let message = [7; 10_000];
//! let shape = Shape::fitting(message.len(), 1440)?;
//! let encoder = Encoder::new(&message, shape, Schedule::Default, 1, 42)?;
//! let mut decoder = Decoder::for_shape(&shape);
//!
//! let mut datagram = vec![0; encoder.datagram_bytes()];
//! for sequence in 0.. {
//!     encoder.write(sequence..sequence + 1, &mut datagram)?;
//!     // The network loses every third.
//!     if sequence % 3 != 0 && decoder.receive(&datagram) == Ok(Received::Complete) {
//!         break;
//!     }
//! }
//! assert_eq!(decoder.message(), Some(&message[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// A decoder's input is what anybody sends: nothing may overflow, whatever it is.
// A test that does fails, as it should.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![cfg_attr(
    not(any(target_arch = "aarch64", target_arch = "x86_64")),
    allow(
        dead_code,
        unused_unsafe,
        unused_variables,
        reason = "where no kernel has vectors, what is made for them has no use"
    )
)]

mod additive;
mod block;
mod cauchy;
mod cauchy_sum;
mod decoder;
mod encoder;
mod gf256;
mod kernel;
#[cfg(feature = "std")]
mod pool;
mod recovery;
#[cfg(feature = "std")]
mod repair_cache;
mod schedule;
mod shape;
mod spread;
pub mod wire;

pub use self::{
    block::Block,
    decoder::{Decoder, Memory, Received, Refused},
    encoder::{EncodeError, Encoder},
    kernel::Simd,
    schedule::{PaperDegree, Schedule, default_row},
    shape::{MAX_BLOCK_SYMBOLS, MAX_BLOCKS, MAX_MESSAGE_BYTES, Shape, ShapeError},
};

#[cfg(feature = "std")]
pub use self::{pool::DecoderPool, repair_cache::RepairCache};

#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;
