//! Encodes or decodes a message of 64 symbols several times, and does nothing else: `cargo xtask count-codec`
//! runs it in an emulator that counts instructions.
//!
//! What is counted is the difference between more and fewer times, so that what comes before the first
//! does not matter. Each codec uses the widest instructions that the processor has.

use std::env;
use std::hint::black_box;

use anyhow::{Context as _, Result, bail, ensure};
use cloudburst_code::{Block, Decoder, Encoder, Received, Schedule, Shape};
use reed_solomon_simd::engine::{DefaultEngine, Engine};
use reed_solomon_simd::rate::{DefaultRateDecoder, DefaultRateEncoder, RateDecoder, RateEncoder};

const SYMBOL_BYTES: usize = 1_440;
const SYMBOLS: usize = 64;
const REPAIRS: usize = 20;

fn main() -> Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [codec, work, times] = &arguments[..] else {
        bail!("usage: codec-count default|mds|reed-solomon-simd LOST TIMES; LOST 0 encodes");
    };
    let times: usize = times.parse().context("TIMES is a number")?;
    let lost: usize = work.parse().context("LOST is a number")?;
    ensure!(lost < REPAIRS, "{REPAIRS} repair symbols mend no {lost}");
    match &**codec {
        "default" => ours(Schedule::Default, lost, times),
        "mds" => ours(Schedule::Mds, lost, times),
        "reed-solomon-simd" => reed_solomon(DefaultEngine::new, lost, times),
        other => bail!("{other}: no such codec"),
    }
}

/// Bytes that are like any other.
fn message() -> Vec<u8> {
    let mut state = 7_u64;
    let bytes = (0..SYMBOLS * SYMBOL_BYTES).map(|_| {
        // Numerical Recipes' generator.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    bytes.collect()
}

/// The source symbols that arrive, where so many are lost all over the message.
fn arriving(lost: usize) -> impl Iterator<Item = usize> {
    (0..SYMBOLS).filter(move |symbol| symbol * 7 % SYMBOLS >= lost)
}

fn ours(schedule: Schedule, lost: usize, times: usize) -> Result<()> {
    let message = message();
    let shape = Shape::new(message.len(), SYMBOL_BYTES)?;
    let encoder = || {
        let encoder = Encoder::new(&message, shape, schedule, 1, 257);
        encoder.context("the shape is the message's")
    };
    let bytes = encoder()?.datagram_bytes();
    let first = SYMBOLS as u32;
    if lost == 0 {
        let mut datagrams = vec![0; REPAIRS * bytes];
        for _ in 0..times {
            encoder()?.write(first..first + REPAIRS as u32, &mut datagrams)?;
            black_box(&datagrams);
        }
        return Ok(());
    }
    // More than are needed, for now and then a sum tells nothing new.
    let count = SYMBOLS + 2 * REPAIRS;
    let mut sent = vec![0; count * bytes];
    encoder()?.write(0..count as u32, &mut sent)?;
    let mut decoder: Decoder<Vec<u8>, Vec<Block>> = Decoder::for_shape(&shape);
    for _ in 0..times {
        decoder.reset();
        let arrived = arriving(lost).chain(SYMBOLS..count);
        let mut datagrams = arrived.map(|sequence| &sent[sequence * bytes..][..bytes]);
        let is_whole = datagrams.any(|it| decoder.receive(it) == Ok(Received::Complete));
        ensure!(is_whole, "the message stays incomplete");
    }
    ensure!(decoder.message() == Some(&message[..]), "another message");
    Ok(())
}

fn reed_solomon<E: Engine>(engine: impl Fn() -> E, lost: usize, times: usize) -> Result<()> {
    let message = message();
    let symbols: Vec<_> = message.chunks_exact(SYMBOL_BYTES).collect();
    let mut encoder = DefaultRateEncoder::new(SYMBOLS, REPAIRS, SYMBOL_BYTES, engine(), None)?;
    let encodings = if lost == 0 { times } else { 1 };
    let mut repairs: Vec<Vec<u8>> = Vec::new();
    for _ in 0..encodings {
        for symbol in &symbols {
            encoder.add_original_shard(symbol)?;
        }
        let encoded = encoder.encode()?;
        black_box(encoded.recovery(0));
        if lost > 0 {
            repairs = encoded.recovery_iter().map(<[u8]>::to_vec).collect();
        }
    }
    if lost == 0 {
        return Ok(());
    }
    let mut decoder = DefaultRateDecoder::new(SYMBOLS, REPAIRS, SYMBOL_BYTES, engine(), None)?;
    let mut decoded = vec![0; message.len()];
    let mut place = |symbol: usize, bytes: &[u8]| {
        decoded[symbol * SYMBOL_BYTES..][..SYMBOL_BYTES].copy_from_slice(bytes);
    };
    for _ in 0..times {
        for symbol in arriving(lost) {
            decoder.add_original_shard(symbol, symbols[symbol])?;
            place(symbol, symbols[symbol]);
        }
        for (index, repair) in repairs.iter().take(lost).enumerate() {
            decoder.add_recovery_shard(index, repair)?;
        }
        let restored = decoder.decode()?;
        for (symbol, bytes) in restored.restored_original_iter() {
            place(symbol, bytes);
        }
    }
    ensure!(decoded == message, "another message");
    Ok(())
}
