//! Protocol counters as the kernel prints them: pairs of lines, names above values.

use std::{collections::BTreeMap, fs, io, str::FromStr};

/// Protocol counters of one namespace at one moment, by the names that `nstat` uses
/// (`TcpRetransSegs`, `TcpExtPAWSEstab`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, i64>);

/// What is wrong with a counter file.
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

#[cfg(test)]
mod tests {
    use super::*;

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
