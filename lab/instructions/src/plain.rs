//! Values that are shared with the kernel programs, as bytes.

use flow_balance::RemoteBacklogs;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::fabric::{Agreement, FabricCounters};
use splitter_policy::forward::Mac;
use splitter_policy::next_hop::{Generation, TunnelHops};
use splitter_policy::paths::{SitePaths, UplinkNumbers};
use splitter_policy::prefix_lengths::PrefixLengths;
use splitter_policy::reverse::ReverseEntry;
use splitter_policy::settings::Settings;

/// A shape of integers that any bytes are a value of, and that has no others.
///
/// # Safety
/// The type is `repr(C)`, made of integers alone, and has no padding.
pub(crate) unsafe trait Plain: Copy + 'static {}

macro_rules! plain_data {
    ($($shape:ty),*) => {$(
        // SAFETY: `repr(C)`, made of integers without padding; the agent writes and reads it as bytes.
        unsafe impl Plain for $shape {}
    )*};
}

plain_data!(
    Agreement,
    Counters,
    EgressCounts,
    FabricCounters,
    Generation,
    Mac,
    PrefixLengths,
    RemoteBacklogs,
    ReverseEntry,
    Settings,
    SitePaths,
    TunnelHops,
    UplinkNumbers,
    u64
);

/// The bytes of a value.
pub(crate) const fn bytes_of<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: the value is borrowed for as long, and has no bytes that are not written.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// The value that bytes are; `None` where they are not as many.
pub(crate) fn value_of<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes, any of which are a valid value; they need not be aligned.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
