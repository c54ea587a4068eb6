//! Fingerprints of files that a scenario names: whether a run is of what is there now.

use std::{fs::File, io::Read as _, path::Path};

/// Length and hash of a file (FNV-1a of 64 bits): enough to tell versions of a file apart, not to withstand
/// forgery. None if it cannot be read.
pub(super) fn fingerprint(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let (mut length, mut hash) = (0, 0xcbf2_9ce4_8422_2325u64);
    let mut buffer = [0; 1 << 14];
    loop {
        let read = file.read(&mut buffer).ok()?;
        if read == 0 {
            return Some(format!("{length} bytes, {hash:016x}"));
        }
        length += read;
        for byte in &buffer[..read] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
