//! Reasons why packets pass as they are.

/// The reason why a packet passes as it is; each becomes a counter of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PassReason {
    /// The frame ends within the Ethernet header or a VLAN tag.
    TruncatedEthernet,
    /// More than two VLAN tags (802.1Q and QinQ are understood).
    TooManyVlanTags,
    /// Neither IPv4 nor IPv6: ARP, LLDP, MPLS and so on.
    NotIp,
    /// The frame ends within the IPv4 header or its options.
    TruncatedIpv4,
    /// Version, header length or total length of the IPv4 header contradict.
    MalformedIpv4,
    /// The frame ends within the IPv6 header or an extension header.
    TruncatedIpv6,
    /// The version field of the IPv6 header is not 6.
    MalformedIpv6,
    /// More IPv6 extension headers than the parser follows (six).
    TooManyExtensionHeaders,
    /// A fragment other than the first: it carries no ports.
    LaterFragment,
    /// The frame ends within the TCP or UDP header.
    TruncatedTransport,
    /// The TCP header length is below 20 bytes or beyond the packet.
    MalformedTcp,
    /// UDP is not split (paper §II-B).
    Udp,
    /// ESP is not split.
    Esp,
    /// GRE is not split.
    Gre,
    /// A transport other than TCP, UDP, ESP or GRE: ICMP, SCTP and so on.
    OtherProtocol,
    /// The flow table was full, or refused.
    TableFull,
}

impl PassReason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 16] = [
        Self::TruncatedEthernet,
        Self::TooManyVlanTags,
        Self::NotIp,
        Self::TruncatedIpv4,
        Self::MalformedIpv4,
        Self::TruncatedIpv6,
        Self::MalformedIpv6,
        Self::TooManyExtensionHeaders,
        Self::LaterFragment,
        Self::TruncatedTransport,
        Self::MalformedTcp,
        Self::Udp,
        Self::Esp,
        Self::Gre,
        Self::OtherProtocol,
        Self::TableFull,
    ];

    /// The one whose number the lowest four bits are: masked, so that the kernel's
    /// verifier sees what the type promises.
    #[inline(always)]
    pub(crate) const fn numbered(bits: u64) -> Self {
        match bits & 15 {
            0 => Self::TruncatedEthernet,
            1 => Self::TooManyVlanTags,
            2 => Self::NotIp,
            3 => Self::TruncatedIpv4,
            4 => Self::MalformedIpv4,
            5 => Self::TruncatedIpv6,
            6 => Self::MalformedIpv6,
            7 => Self::TooManyExtensionHeaders,
            8 => Self::LaterFragment,
            9 => Self::TruncatedTransport,
            10 => Self::MalformedTcp,
            11 => Self::Udp,
            12 => Self::Esp,
            13 => Self::Gre,
            14 => Self::OtherProtocol,
            _ => Self::TableFull,
        }
    }

    /// The frame ended before its headers did, as far as it was at hand.
    #[inline(always)]
    pub const fn is_truncated(self) -> bool {
        matches!(
            self,
            Self::TruncatedEthernet
                | Self::TruncatedIpv4
                | Self::TruncatedIpv6
                | Self::TruncatedTransport
        )
    }

    /// The name that metrics and tables show.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TruncatedEthernet => "truncated_ethernet",
            Self::TooManyVlanTags => "too_many_vlan_tags",
            Self::NotIp => "not_ip",
            Self::TruncatedIpv4 => "truncated_ipv4",
            Self::MalformedIpv4 => "malformed_ipv4",
            Self::TruncatedIpv6 => "truncated_ipv6",
            Self::MalformedIpv6 => "malformed_ipv6",
            Self::TooManyExtensionHeaders => "too_many_extension_headers",
            Self::LaterFragment => "later_fragment",
            Self::TruncatedTransport => "truncated_transport",
            Self::MalformedTcp => "malformed_tcp",
            Self::Udp => "udp",
            Self::Esp => "esp",
            Self::Gre => "gre",
            Self::OtherProtocol => "other_protocol",
            Self::TableFull => "table_full",
        }
    }
}

// Four bits carry a reason from one kernel function to the next: a seventeenth needs a fifth one in
// `numbered`, and would be taken for another reason without.
const _: () = {
    let mut number = 0;
    while number < PassReason::ALL.len() {
        let reason = PassReason::ALL[number];
        assert!(reason as usize == number);
        assert!(PassReason::numbered(number as u64) as usize == number);
        number += 1;
    }
};
