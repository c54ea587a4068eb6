//! How much of a file is there.

use std::collections::BTreeMap;

use super::Chunk;

/// What is there from the beginning, and which pieces beyond that.
///
/// The digest is made as the beginning grows, so that nothing of a large file is left to do
/// when its last piece has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    hasher: blake3::Hasher,
    /// Bytes from the beginning that are all there, and in the digest.
    pub(super) contiguous: u64,
    /// Lengths of pieces that others before them are missing of, by where they begin.
    beyond: BTreeMap<u64, usize>,
    /// Bytes of those.
    pub(super) beyond_bytes: u64,
    total: Option<u64>,
}

impl Progress {
    /// Whether a piece is there already.
    pub(super) fn has(&self, chunk: &Chunk<'_>) -> bool {
        chunk.offset < self.contiguous || self.beyond.contains_key(&chunk.offset)
    }

    /// Notes a piece that is there now.
    pub(super) fn add(&mut self, chunk: &Chunk<'_>) {
        self.total = self.total.or(chunk.total);
        if !self.has(chunk) {
            self.beyond.insert(chunk.offset, chunk.data.len());
            self.beyond_bytes += chunk.data.len() as u64;
        }
    }

    /// Where the beginning can grow, and by how much; [`Self::grow`] then takes the data.
    pub(super) fn next(&self) -> Option<(u64, usize)> {
        let (&offset, &bytes) = self.beyond.first_key_value()?;
        (offset == self.contiguous).then_some((offset, bytes))
    }

    pub(super) fn grow(&mut self, data: &[u8]) {
        self.beyond.remove(&self.contiguous);
        self.beyond_bytes -= data.len() as u64;
        self.contiguous += data.len() as u64;
        self.hasher.update(data);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.total == Some(self.contiguous) && self.beyond.is_empty()
    }

    pub(super) fn blake3(&self) -> blake3::Hash {
        self.hasher.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_matter() {
        let content = b"abcdefgh";
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut progress = Progress::default();
            for piece in order {
                let offset = piece * 3;
                let data = &content[offset..(offset + 3).min(8)];
                let chunk = Chunk {
                    transfer: 1,
                    offset: offset as u64,
                    total: (piece == 2).then_some(8),
                    name: "",
                    data,
                };
                assert!(!progress.is_complete());
                assert!(!progress.has(&chunk));
                progress.add(&chunk);
                assert!(progress.has(&chunk));
                while let Some((offset, bytes)) = progress.next() {
                    progress.grow(&content[offset as usize..][..bytes]);
                }
            }
            assert!(progress.is_complete());
            assert_eq!(progress.blake3(), blake3::hash(content));
        }
    }

    #[test]
    fn an_empty_piece_ends_an_empty_file() {
        let mut progress = Progress::default();
        let empty = Chunk {
            transfer: 1,
            offset: 0,
            total: Some(0),
            name: "",
            data: b"",
        };
        progress.add(&empty);
        assert_eq!(progress.next(), Some((0, 0)));
        progress.grow(b"");
        assert_eq!(progress.next(), None);
        assert!(progress.is_complete());
    }
}
