//! What a coded answer took, which the server knows and the client reports.
//!
//! Servers hand it to clients outside of the network, for they are one process.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::Coding;

/// A request begins with its number and the length that is asked for.
pub(super) const NUMBER_BYTES: usize = 8;
const LENGTH_BYTES: usize = 4;

/// The codings of requests that are not answered yet, by number.
#[derive(Default)]
pub(super) struct Receipts {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<OnceLock<Coding>>>>,
}

impl Receipts {
    /// Gives a request its number, and a place for what its answer will have taken.
    pub(super) fn open(&self) -> (u64, Arc<OnceLock<Coding>>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let coding = Arc::default();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(number, Arc::clone(&coding));
        (number, coding)
    }

    /// The answer to a request is there, and took this.
    pub(super) fn close(&self, number: u64, coding: Coding) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = open.remove(&number) {
            // The only one who fills it in.
            let _ = place.set(coding);
        }
    }
}

/// A request of `request_bytes` bytes at least, for an answer of `bytes` bytes.
pub(super) fn request(number: u64, bytes: u32, request_bytes: usize) -> Vec<u8> {
    let mut request = vec![0; request_bytes.max(NUMBER_BYTES + LENGTH_BYTES)];
    let (first, rest) = request.split_at_mut(NUMBER_BYTES);
    first.copy_from_slice(&number.to_be_bytes());
    rest[..LENGTH_BYTES].copy_from_slice(&bytes.to_be_bytes());
    request
}

/// The number of a request, and the length that it asks for.
pub(super) fn parse(request: &[u8]) -> Option<(u64, u32)> {
    let (number, rest) = request.split_first_chunk::<NUMBER_BYTES>()?;
    let length = rest.first_chunk::<LENGTH_BYTES>()?;
    Some((u64::from_be_bytes(*number), u32::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_says_its_number_and_what_it_asks_for() {
        let written = request(7, 93_000, 1_500);
        assert_eq!(written.len(), 1_500);
        assert_eq!(parse(&written), Some((7, 93_000)));
        assert_eq!(parse(&written[..11]), None);
    }

    #[test]
    fn receipt_reaches_the_request_with_its_number_alone() {
        let receipts = Receipts::default();
        let [(one, of_one), (two, of_two)] = [(); 2].map(|()| receipts.open());
        assert_ne!(one, two);
        let coding = Coding {
            n: 4,
            needed: None,
            sent: 9,
        };
        receipts.close(two, coding);
        receipts.close(two, Coding { sent: 1, ..coding });
        assert_eq!(of_two.get().map(|it| it.sent), Some(9));
        assert!(of_one.get().is_none());
    }
}
