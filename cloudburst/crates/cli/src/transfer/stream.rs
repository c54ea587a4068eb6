//! One file on its way to something that can only be written in order.

use std::{collections::HashMap, io, path::PathBuf, time::Instant};

use anyhow::Context as _;
use cloudburst::PeerId;

use super::{Arrived, Chunk, NotTaken, harmless, progress::Progress};

/// One file on its way to something that can only be written in order.
#[derive(Debug)]
pub(crate) struct Stream<W> {
    output: W,
    key: Option<(PeerId, u64)>,
    progress: Progress,
    /// Pieces that others before them are missing of.
    waiting: HashMap<u64, Vec<u8>>,
    start: Instant,
}

/// Bytes that may wait for others before them.
const MAX_WAITING_BYTES: u64 = 256 << 20;

impl<W: io::Write> Stream<W> {
    pub(crate) fn new(output: W) -> Self {
        Self {
            output,
            key: None,
            progress: Progress::default(),
            waiting: HashMap::new(),
            start: Instant::now(),
        }
    }

    /// Takes a message; what arrived if that was the last piece. Pieces of other files than the
    /// first are not taken.
    pub(crate) fn take(&mut self, peer: PeerId, message: &[u8]) -> anyhow::Result<Option<Arrived>> {
        let chunk = Chunk::parse(message)?;
        let key = (peer, chunk.transfer);
        if *self.key.get_or_insert(key) != key {
            return Err(NotTaken::OneFileOnly(harmless(chunk.name)).into());
        }
        if self.progress.has(&chunk) {
            return Ok(None);
        }
        self.progress.add(&chunk);
        self.waiting.insert(chunk.offset, chunk.data.to_vec());
        while let Some((offset, _)) = self.progress.next()
            && let Some(data) = self.waiting.remove(&offset)
        {
            self.output
                .write_all(&data)
                .context("cannot write to standard output")?;
            self.progress.grow(&data);
        }
        let waits = self.progress.beyond_bytes;
        anyhow::ensure!(
            waits <= MAX_WAITING_BYTES,
            "{waits} bytes wait for others before them that do not come"
        );
        if !self.progress.is_complete() {
            return Ok(None);
        }
        self.output
            .flush()
            .context("cannot write to standard output")?;
        Ok(Some(Arrived {
            file: PathBuf::from("-"),
            bytes: self.progress.contiguous,
            seconds: self.start.elapsed().as_secs_f64(),
            blake3: self.progress.blake3(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{CHUNK, somebody},
        *,
    };

    #[test]
    fn a_second_file_does_not_end_the_first() {
        let mut output = Vec::new();
        let mut stream = Stream::new(&mut output);
        let peer = somebody();
        let take =
            |stream: &mut Stream<_>, chunk: Chunk<'_>| stream.take(peer, &chunk.to_message());
        assert!(take(&mut stream, CHUNK).unwrap().is_none());
        let other = Chunk {
            transfer: 8,
            ..CHUNK
        };
        assert!(take(&mut stream, other).unwrap_err().is::<NotTaken>());
        let first = Chunk { offset: 0, ..CHUNK };
        let arrived = take(&mut stream, first).unwrap().unwrap();
        assert_eq!(arrived.bytes, 6);
        assert_eq!(arrived.blake3, blake3::hash(b"abcabc"));
        assert_eq!(output, b"abcabc");
    }
}
