//! The clock that the kernel programs read.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` as the kernel programs read it: the clock of all times in the flow table, which
/// nobody can set. In a time namespace (time_namespaces(7)) this process would read another one.
pub fn monotonic_ns() -> u64 {
    // The clock exists on every Linux; a zero would only make flows look young.
    let own_ns = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| Duration::from(time).as_nanos() as u64);
    let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    own_ns.saturating_add_signed(offset_ns(&offsets).saturating_neg())
}

/// By how much the clock is ahead here; 0 on a kernel without time namespaces.
fn offset_ns(offsets: &str) -> i64 {
    let mut lines = offsets.lines().map(str::split_whitespace);
    let offset = lines.find_map(|mut words| match words.next()? {
        "monotonic" | "1" => {
            let seconds: i64 = words.next()?.parse().ok()?;
            let nanoseconds: i64 = words.next()?.parse().ok()?;
            Some(
                seconds
                    .saturating_mul(1_000_000_000)
                    .saturating_add(nanoseconds),
            )
        }
        _ => None,
    });
    offset.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_is_read_as_the_kernel_writes_it() {
        let text = "monotonic        -5  500000000\nboottime          7         0\n";
        assert_eq!(offset_ns(text), -4_500_000_000);
        assert_eq!(offset_ns("1 3 0\n7 0 0\n"), 3_000_000_000);
        assert_eq!(offset_ns(""), 0);
        assert_eq!(offset_ns("monotonic x 0\n"), 0);
    }
}
