//! Protocol counters as the kernel prints them (pairs of lines, names above values), and counters of
//! devices.

use std::{collections::BTreeMap, fs, io, str::FromStr};

/// Protocol counters of one namespace at one moment, by the names that `nstat` uses
/// (`TcpRetransSegs`, `TcpExtPAWSEstab`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, i64>);

/// Counts what a device has sent and received since it was made, headers included. What its queueing
/// discipline dropped was not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
}

/// Says what is wrong with a counter file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCountersError {
    /// A line of names without the line of values that belongs to it.
    #[error("no values follow the names of {0:?}")]
    Unpaired(String),
    /// A value that is not a number.
    #[error("{name} has the value {value:?}, which is not a number")]
    NotANumber {
        /// The counter.
        name: String,
        /// Its value as read.
        value: String,
    },
}

impl Counters {
    /// The value of a counter, 0 for one that this kernel does not have.
    pub fn total(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// By how much a counter has risen since `earlier`.
    pub fn since(&self, earlier: &Self, name: &str) -> u64 {
        u64::try_from(self.total(name) - earlier.total(name)).unwrap_or(0)
    }
}

impl FromStr for Counters {
    type Err = ParseCountersError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut counters = BTreeMap::new();
        let mut lines = text.lines();
        while let Some(names) = lines.next() {
            let unpaired = || ParseCountersError::Unpaired(names.to_owned());
            let (group, names) = names.split_once(':').ok_or_else(unpaired)?;
            let (same_group, values) = lines
                .next()
                .and_then(|line| line.split_once(':'))
                .ok_or_else(unpaired)?;
            if group != same_group {
                return Err(unpaired());
            }
            for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
                let name = format!("{group}{name}");
                let Ok(number) = value.parse() else {
                    return Err(ParseCountersError::NotANumber {
                        name,
                        value: value.to_owned(),
                    });
                };
                counters.insert(name, number);
            }
        }
        Ok(Self(counters))
    }
}

/// Both counter files of the calling thread's network namespace.
pub(super) fn read() -> io::Result<String> {
    let mut text = fs::read_to_string("/proc/thread-self/net/netstat")?;
    text.push_str(&fs::read_to_string("/proc/thread-self/net/snmp")?);
    Ok(text)
}

/// The counters of a device in the calling thread's network namespace.
pub(super) fn read_device(device: &str) -> io::Result<DeviceCounters> {
    let text = fs::read_to_string("/proc/thread-self/net/dev")?;
    parse_device(&text, device).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Eight numbers about receiving, then as many about sending; bytes and packets come first.
fn parse_device(text: &str, device: &str) -> Option<DeviceCounters> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == device)?;
    let numbers: Vec<u64> = numbers
        .split_whitespace()
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    Some(DeviceCounters {
        received_bytes: *numbers.first()?,
        received_packets: *numbers.get(1)?,
        sent_bytes: *numbers.get(8)?,
        sent_packets: *numbers.get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_device() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets\n\
                    lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n eth0: 5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n";
        let expected = DeviceCounters {
            received_bytes: 5,
            received_packets: 6,
            sent_bytes: 7,
            sent_packets: 8,
        };
        assert_eq!(parse_device(text, "eth0"), Some(expected));
        assert_eq!(parse_device(text, "eth1"), None);
    }

    #[test]
    fn reads_what_the_kernel_prints() {
        let text =
            "TcpExt: PAWSEstab TCPTimeouts\nTcpExt: 3 4\nTcp: MaxConn RetransSegs\nTcp: -1 9\n";
        let counters: Counters = text.parse().expect("a valid file");
        assert_eq!(counters.total("TcpExtPAWSEstab"), 3);
        assert_eq!(counters.total("TcpMaxConn"), -1);
        assert_eq!(counters.total("TcpExtOfAnotherKernel"), 0);
        assert_eq!(counters.since(&Counters::default(), "TcpRetransSegs"), 9);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in ["TcpExt: A", "TcpExt: A\nTcp: 1", "no colon\nTcp: 1"] {
            assert!(matches!(
                text.parse::<Counters>(),
                Err(ParseCountersError::Unpaired(_))
            ));
        }
        assert!(matches!(
            "Tcp: A\nTcp: x".parse::<Counters>(),
            Err(ParseCountersError::NotANumber { .. })
        ));
    }
}
