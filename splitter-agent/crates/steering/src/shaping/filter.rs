//! The program that names a packet's class by its DSCP.
//!
//! Classic BPF, which every kernel runs without further rights. It looks at the network header
//! wherever that is, so that it works on devices with and without Ethernet header.

use splitter_config::Dscp;
use splitter_policy::fwmark::MarkBits;

/// An instruction: code, jumps for true and false, operand (`struct sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

impl Instruction {
    pub(super) fn to_bytes(self) -> [u8; 8] {
        let [a, b] = self.code.to_ne_bytes();
        let [c, d, e, f] = self.operand.to_ne_bytes();
        [a, b, self.if_true, self.if_false, c, d, e, f]
    }
}

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const SHIFT_RIGHT: u16 = 0x74;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// `SKF_AD_OFF + SKF_AD_PROTOCOL`: the EtherType, without VLAN tags.
const PROTOCOL: u32 = 0xffff_f000;
/// `SKF_AD_OFF + SKF_AD_MARK`: the kernel's mark.
const MARK: u32 = 0xffff_f014;
/// `SKF_NET_OFF`: where the network header starts.
const NETWORK: u32 = 0xfff0_0000;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;

/// What a packet is reported by.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// Its DSCP, and what is returned for it.
    pub(super) dscps: Vec<(Dscp, u32)>,
    /// The bits of the kernel's fwmark, which are looked at first.
    pub(super) mark_bits: MarkBits,
    /// A mark in them, and what is returned for it.
    pub(super) marks: Vec<(Dscp, u32)>,
}

/// Returns what is chosen for a packet, and `otherwise` for IP packets for which nothing is. What is
/// not IP, such as ARP, must never wait: `not_ip`.
pub(super) fn program(chosen: &Chosen, otherwise: u32, not_ip: u32) -> Vec<Instruction> {
    let plain = |code, operand| Instruction {
        code,
        if_true: 0,
        if_false: 0,
        operand,
    };
    let unless_equal_skip = |operand, if_false| Instruction {
        if_false,
        ..plain(JUMP_IF_EQUAL, operand)
    };
    let mut program = Vec::new();
    if !chosen.marks.is_empty() {
        program.push(plain(LOAD_WORD, MARK));
        program.push(plain(AND, chosen.mark_bits.mask()));
        for &(mark, class) in &chosen.marks {
            let value = chosen.mark_bits.of(mark.policy());
            program.push(unless_equal_skip(value, 1));
            program.push(plain(RETURN, class));
        }
    }
    program.extend([
        plain(LOAD_WORD, PROTOCOL),
        unless_equal_skip(IPV4, 3),
        plain(LOAD_BYTE, NETWORK + 1),
        plain(SHIFT_RIGHT, 2),
        plain(JUMP, 5),
        unless_equal_skip(IPV6, 3),
        plain(LOAD_HALF, NETWORK),
        plain(SHIFT_RIGHT, 6),
        plain(JUMP, 1),
        plain(RETURN, not_ip),
        plain(AND, 0x3f),
    ]);
    for &(dscp, class) in &chosen.dscps {
        program.push(unless_equal_skip(dscp.get().into(), 1));
        program.push(plain(RETURN, class));
    }
    program.push(plain(RETURN, otherwise));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u32 = 10;
    const LONG: u32 = 20;
    const TINY: u32 = 30;
    const NOT_IP: u32 = 40;

    /// Interprets the program on a packet that starts with its network header.
    fn run(program: &[Instruction], protocol: u32, mark: u32, packet: &[u8]) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let it = program[at];
            at += 1;
            let byte = |offset: u32| u32::from(packet[(it.operand - NETWORK + offset) as usize]);
            match it.code {
                LOAD_WORD if it.operand == MARK => value = mark,
                LOAD_WORD => value = protocol,
                LOAD_BYTE => value = byte(0),
                LOAD_HALF => value = byte(0) << 8 | byte(1),
                SHIFT_RIGHT => value >>= it.operand,
                AND => value &= it.operand,
                JUMP => at += it.operand as usize,
                JUMP_IF_EQUAL if value == it.operand => at += usize::from(it.if_true),
                JUMP_IF_EQUAL => at += usize::from(it.if_false),
                RETURN => return it.operand,
                code => panic!("code {code:#x}"),
            }
        }
    }

    #[test]
    fn class_follows_from_the_dscp_in_both_families() {
        let dscp = |value: u8| Dscp::try_from(value).unwrap();
        let chosen = Chosen {
            dscps: vec![(dscp(4), SHORT), (dscp(5), SHORT), (dscp(44), TINY)],
            ..Chosen::default()
        };
        let program = program(&chosen, LONG, NOT_IP);
        for (value, class) in [
            (4, SHORT),
            (5, SHORT),
            (44, TINY),
            (2, LONG),
            (0, LONG),
            (63, LONG),
        ] {
            for ecn in 0..4 {
                let tos = value << 2 | ecn;
                assert_eq!(run(&program, IPV4, 77, &[0x45, tos]), class);
                assert_eq!(run(&program, IPV6, 77, &[0x60 | tos >> 4, tos << 4]), class);
            }
        }
        assert_eq!(run(&program, 0x0806, 77, &[]), NOT_IP);
    }

    #[test]
    fn class_follows_from_our_bits_of_the_kernels_mark_and_then_from_the_dscp() {
        let dscp = |value: u8| Dscp::try_from(value).unwrap();
        let chosen = Chosen {
            dscps: vec![(dscp(44), TINY)],
            mark_bits: MarkBits::new(0x3f00).unwrap(),
            marks: vec![(dscp(4), SHORT), (dscp(5), SHORT)],
        };
        let program = program(&chosen, LONG, NOT_IP);
        for (mark, tos, class) in [
            (0x0400, 0, SHORT),
            (0xdead_c500, 44 << 2, SHORT),
            (0x0200, 0, LONG),
            // A DSCP of the sender's decides nothing.
            (0, 4 << 2, LONG),
            (0x04, 0, LONG),
            (0, 44 << 2, TINY),
        ] {
            assert_eq!(run(&program, IPV4, mark, &[0x45, tos]), class, "{mark:#x}");
            let v6 = [0x60 | tos >> 4, tos << 4];
            assert_eq!(run(&program, IPV6, mark, &v6), class, "{mark:#x}");
        }
        assert_eq!(run(&program, 0x0806, 0, &[]), NOT_IP);
    }
}
