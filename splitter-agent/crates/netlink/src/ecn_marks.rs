//! Packets that queueing disciplines mark as congested (ECN, RFC 3168) instead of dropping them.
//!
//! Each kind counts them in statistics of its own, whose layout is that of linux/pkt_sched.h.

use netlink_packet_route::tc::{TcFqCodelXstats, TcXstats};
use rtnetlink::packet_core::NlasIterator;

/// Field of CAKE's statistics that lists those of its tins.
const TCA_CAKE_STATS_TIN_STATS: u16 = 10;
/// Field of a tin that counts marked packets.
const TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS: u16 = 8;
/// What the flags of a nested attribute leave of its kind.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Returns how many packets a queueing discipline of `kind` has marked; 0 for a kind that counts none.
pub(crate) fn ecn_marks(kind: &str, statistics: &TcXstats) -> u64 {
    match statistics {
        TcXstats::FqCodel(TcFqCodelXstats::Qdisc(it)) => {
            u64::from(it.ecn_mark) + u64::from(it.ce_mark)
        }
        TcXstats::Other(bytes) => in_bytes(kind, bytes).unwrap_or(0),
        _ => 0,
    }
}

fn in_bytes(kind: &str, bytes: &[u8]) -> Option<u64> {
    let at = |offset: usize| {
        let field = bytes.get(offset..offset + 4)?.try_into().ok()?;
        Some(u64::from(u32::from_ne_bytes(field)))
    };
    match kind {
        // tc_codel_xstats: ecn_mark and ce_mark.
        "codel" => Some(at(24)? + at(32)?),
        // tc_red_xstats: marked.
        "red" => at(12),
        // tc_pie_xstats: ecn_mark.
        "pie" => at(36),
        // tc_fq_pie_xstats: ecn_mark.
        "fq_pie" => at(16),
        // tc_fq_qd_stats: ce_mark, which older kernels lack.
        "fq" => {
            let field = bytes.get(80..88)?.try_into().ok()?;
            Some(u64::from_ne_bytes(field))
        }
        "cake" => Some(of_tins(bytes)),
        _ => None,
    }
}

/// Adds up what all tins of CAKE have marked.
fn of_tins(bytes: &[u8]) -> u64 {
    let nested = |bytes: &[u8], kind: Option<u16>| -> Vec<Vec<u8>> {
        NlasIterator::new(bytes)
            .filter_map(Result::ok)
            .filter(|it| kind.is_none_or(|kind| it.kind() & NLA_TYPE_MASK == kind))
            .map(|it| it.value().to_vec())
            .collect()
    };
    let tins = nested(bytes, Some(TCA_CAKE_STATS_TIN_STATS));
    let tins = tins.iter().flat_map(|tins| nested(tins, None));
    let marks = tins.flat_map(|tin| nested(&tin, Some(TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS)));
    marks
        .filter_map(|it| Some(u64::from(u32::from_ne_bytes(it.try_into().ok()?))))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statistics whose numbers of 32 bits are 1, 2, 3 and so on.
    fn counted(numbers: u32) -> TcXstats {
        TcXstats::Other((1..=numbers).flat_map(u32::to_ne_bytes).collect())
    }

    /// An attribute of netlink.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn marks_are_read_where_each_kind_has_them() {
        for (kind, numbers, expected) in [
            ("codel", 9, 7 + 9),
            ("red", 4, 4),
            ("pie", 10, 10),
            ("fq_pie", 9, 5),
            ("htb", 9, 0),
        ] {
            assert_eq!(ecn_marks(kind, &counted(numbers)), expected, "{kind}");
        }
        let mut of_fq = vec![0; 80];
        of_fq.extend(7_u64.to_ne_bytes());
        assert_eq!(ecn_marks("fq", &TcXstats::Other(of_fq.clone())), 7);
        // Older kernels count no marks there.
        of_fq.truncate(80);
        assert_eq!(ecn_marks("fq", &TcXstats::Other(of_fq)), 0);
    }

    #[test]
    fn marks_of_all_tins_are_added_up() {
        let tin = |number: u16, marks: u32| {
            let sent = attribute(2, &99_u32.to_ne_bytes());
            let marked = attribute(TCA_CAKE_TIN_STATS_ECN_MARKED_PACKETS, &marks.to_ne_bytes());
            attribute(number, &[sent, marked].concat())
        };
        let tins = attribute(TCA_CAKE_STATS_TIN_STATS, &[tin(1, 3), tin(2, 4)].concat());
        let all = [attribute(3, &[0; 4]), tins].concat();
        assert_eq!(ecn_marks("cake", &TcXstats::Other(all)), 7);
    }

    #[test]
    fn statistics_that_are_cut_off_count_nothing() {
        for kind in ["codel", "red", "pie", "fq_pie", "fq", "cake"] {
            for length in 0..12 {
                let cut = TcXstats::Other(vec![0xff; length]);
                assert_eq!(ecn_marks(kind, &cut), 0, "{kind} {length}");
            }
        }
    }
}
