//! What messages take of the paths, apart from everything else that is there.
//!
//! The counters of the paths' devices cannot tell messages from bulk transfers, so the router at the
//! far end of a path counts what arrives by it, before an impairment loses anything. What the queue
//! before the path dropped has never been on the wire, and does not count.

use std::fmt::Write as _;

use flow_testbed::namespace::NamespaceError;

use super::{Carried, Direction, PATHS, Rig, bulk, site_traffic};

/// The kernel counts from the IP header on; devices count this, too.
const ETHERNET_HEADER_BYTES: u64 = 14;

/// Why what messages took could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountingError {
    /// The counter could not be listed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// `nft` listed something else than a counter.
    #[error("nft shows no counter of messages: {0:?}")]
    Unreadable(String),
}

impl Rig {
    /// Reads the traffic that messages have put on all paths in a direction since the rig was built: all that is
    /// between the sites and not bulk or a short flow, requests, repair, acknowledgements and headers included.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn message_traffic(&self, direction: Direction) -> Result<Carried, AccountingError> {
        let far = match direction {
            Direction::ToServer => &self.router_b,
            Direction::ToClient => &self.router_a,
        };
        let listed = far.run("nft list chain ip accounting arriving")?;
        parse(&listed).ok_or(AccountingError::Unreadable(listed))
    }

    /// Has both routers count.
    pub(super) fn count_messages(&self) -> Result<(), NamespaceError> {
        let mut others = format!("{}, ", site_traffic::PORT);
        for path in 0..PATHS {
            let _ = write!(others, "{}, ", bulk::port(path));
        }
        // Before chains at priority raw, where impairments are.
        let rules = format!(
            "table ip accounting {{
               chain arriving {{
                 type filter hook prerouting priority -310; policy accept;
                 iifname != \"path*\" accept
                 tcp sport {{ {others} }} accept
                 tcp dport {{ {others} }} accept
                 counter
               }}
             }}\n"
        );
        for router in [&self.router_a, &self.router_b] {
            router.run_with_input("nft -f -", &rules)?;
        }
        Ok(())
    }
}

/// Reads the only counter of a chain: `counter packets 5 bytes 420`.
fn parse(listed: &str) -> Option<Carried> {
    let (_, counter) = listed.split_once("counter packets ")?;
    let mut words = counter.split_whitespace();
    let packets = words.next()?.parse().ok()?;
    let bytes: u64 = (words.next()? == "bytes").then(|| words.next()?.parse().ok())??;
    Some(Carried {
        bytes: bytes + packets * ETHERNET_HEADER_BYTES,
        packets,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_found_in_its_chain() {
        let listed = "table ip accounting {\n\tchain arriving {\n\t\ttype filter hook prerouting priority -310; \
                      policy accept;\n\t\tcounter packets 5 bytes 420\n\t}\n}\n";
        let expected = Carried {
            bytes: 490,
            packets: 5,
        };
        assert_eq!(parse(listed), Some(expected));
        assert_eq!(parse("counter packets many bytes 3"), None);
        assert_eq!(parse("counter packets 5"), None);
        assert_eq!(parse(""), None);
    }
}
