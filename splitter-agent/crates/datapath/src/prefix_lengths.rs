//! How much of a destination the kernel's rules and routes look at.

use std::io;

use splitter_netlink::{Dependence, MatchedPrefix, matched_prefixes};
use splitter_policy::prefix_lengths::{PrefixLengths, PrefixLengthsBuilder, Reach};

/// More rules and routes than that are not read: a full table of the Internet changes by the second,
/// and would be read again and again for prefixes that are long anyway.
const MOST: usize = 100_000;

/// Reads for the network namespace of this thread how much of a packet that is forwarded by one of these
/// devices the rules and routes look at. Blocks for as long as the kernel takes, a microsecond or two for
/// each of them.
///
/// # Errors
/// The kernel's; [`io::ErrorKind::Interrupted`] where they changed each of several times, and
/// [`io::ErrorKind::QuotaExceeded`] where there are more than 100,000.
pub fn read_prefix_lengths(devices: &[u32]) -> io::Result<Box<PrefixLengths>> {
    let mut builder = Box::new(PrefixLengthsBuilder::new());
    matched_prefixes(devices, MOST, |prefix| {
        let MatchedPrefix {
            address,
            length,
            dependence,
        } = prefix;
        let reach = match dependence {
            Dependence::Prefix => Reach::Prefix,
            Dependence::Destination => Reach::Destination,
            Dependence::Flow => Reach::Flow,
        };
        builder.add(address, length, reach);
    })?;
    Ok(Box::new(builder.build()))
}
