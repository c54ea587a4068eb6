//! What the classes of a shaped tunnel have sent.

use flow_testbed::namespace::Namespace;

/// Packets that a class has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

/// What the class 7400:`class` of a device has sent so far.
pub(crate) fn sent_by(border: &Namespace, device: &str, class: &str) -> Sent {
    let shown = border.run(&format!("tc -s class show dev {device}"));
    let shown = shown.expect("tc works");
    let head = format!("htb 7400:{class} ");
    let mut lines = shown.lines().skip_while(|line| !line.contains(&head));
    // " Sent 1514 bytes 1 pkt (dropped 0, overlimits 0 requeues 0)"
    let line = lines.nth(1);
    let line = line.unwrap_or_else(|| panic!("{device} has no class {class}:\n{shown}"));
    let mut numbers = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok());
    let mut next = || numbers.next().expect("a number");
    Sent {
        bytes: next(),
        packets: next(),
        dropped: next(),
    }
}

impl Sent {
    /// What has come to it since.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            packets: self.packets - before.packets,
            dropped: self.dropped - before.dropped,
        }
    }
}

impl std::ops::Add for Sent {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            packets: self.packets + other.packets,
            dropped: self.dropped + other.dropped,
        }
    }
}
