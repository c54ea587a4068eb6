//! The other end of the receivers for a browser and for a bare board: writes the datagrams of messages to a
//! file, those that a lossy network delivers, and in the order in which it does.
//!
//! `cargo run -p cloudburst-code --example sender -- datagrams 30 FILE...`: of each file's bytes as a message,
//! 30 in 100 datagrams are lost. Each is written behind its length, two bytes, the higher first; a length of 0
//! ends the file.

use std::{env, error::Error, fs, io::Write as _};

use cloudburst_code::{Decoder, Encoder, Refused, Schedule, Shape};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::SplitMix64;

/// So that a datagram fits into any that the Internet carries.
const SYMBOL_BYTES: usize = 1_000;
/// Datagrams that are on their way while the receiver's stop is on its way back.
const TOO_LATE: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(output), Some(lost_percent)) = (arguments.next(), arguments.next()) else {
        return Err("usage: sender OUTPUT LOST_PERCENT FILE...".into());
    };
    let lost_percent: u64 = lost_percent.parse()?;
    if lost_percent > 95 {
        return Err("of more than 95 in 100 nothing is left to show".into());
    }
    // The same each time, so that what is seen once is seen again.
    let mut network = Network {
        lost_percent,
        random: SplitMix64::seed_from_u64(1),
        arrived: Vec::new(),
    };
    for (id, file) in (0..).zip(arguments) {
        let message = fs::read(&file).map_err(|error| format!("{file}: {error}"))?;
        network.carry(&message, id)?;
    }
    let mut output = fs::File::create(&output).map_err(|error| format!("{output}: {error}"))?;
    for datagram in &network.arrived {
        output.write_all(&u16::try_from(datagram.len())?.to_be_bytes())?;
        output.write_all(datagram)?;
    }
    output.write_all(&[0; 2])?;
    println!("{} datagrams", network.arrived.len());
    Ok(())
}

struct Network {
    lost_percent: u64,
    random: SplitMix64,
    arrived: Vec<Vec<u8>>,
}

impl Network {
    /// Sends a message until somebody who hears the same has it, as a sender does until it is stopped.
    fn carry(&mut self, message: &[u8], id: u8) -> Result<(), Box<dyn Error>> {
        let shape = Shape::fitting(message.len(), SYMBOL_BYTES)?;
        let encoder = Encoder::new(message, shape, Schedule::Mds, id, u16::from(id))?;
        let mut decoder = Decoder::for_shape(&shape);
        let begin = self.arrived.len();
        let mut late = 0;
        for sequence in 0.. {
            let mut datagram = vec![0; encoder.datagram_bytes()];
            encoder.write(sequence..sequence + 1, &mut datagram)?;
            if self.random.next_u64() % 100 < self.lost_percent {
                continue;
            }
            let is_late = decoder.receive(&datagram) == Err(Refused::Redundant);
            late += usize::from(is_late && decoder.message().is_some());
            self.arrived.push(datagram);
            if late == TOO_LATE {
                break;
            }
        }
        // What left first arrives last, and of the message before something only now.
        self.arrived[begin..].reverse();
        if let Some(before) = begin.checked_sub(1) {
            self.arrived.swap(before, begin);
        }
        Ok(())
    }
}
