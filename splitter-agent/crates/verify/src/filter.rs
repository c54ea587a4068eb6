//! Which packets the kernel shows us: those between two addresses, by their fwmark where that is
//! asked for.

use std::net::IpAddr;

use socket2::SockFilter;

/// The fwmark that a packet must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FwmarkIs {
    /// Whatever it is.
    Any,
    /// This, under the mask.
    Exactly {
        /// The bits that count.
        mask: u32,
        /// What they are.
        value: u32,
    },
    /// None of these, under the mask.
    NoneOf {
        /// The bits that count.
        mask: u32,
        /// What they are not.
        values: Vec<u32>,
    },
}

/// A filter of a packet socket that begins at the network header (`SOCK_DGRAM`).
pub(crate) fn between(one: IpAddr, other: IpAddr, mark: &FwmarkIs) -> Vec<SockFilter> {
    let program = instructions(one, other, mark);
    program.iter().map(Instruction::build).collect()
}

fn instructions(one: IpAddr, other: IpAddr, mark: &FwmarkIs) -> Vec<Instruction> {
    let mut program = Vec::new();
    // Each direction is a list of comparisons: all hold, or the next one is tried.
    for (source, destination) in [(one, other), (other, one)] {
        program.extend(direction(source, destination));
    }
    program.push(ret(0));
    let tail = accept(mark);
    let length = program.len();
    // Where all comparisons of a direction hold, the packet is accepted: behind the refusal above.
    for (index, instruction) in program.iter_mut().enumerate() {
        if instruction.code == JUMP {
            instruction.k = (length - index - 1) as u32;
        }
    }
    program.extend(tail);
    program
}

#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    /// How many instructions are left out where the comparison holds, and where it does not.
    jumps: [u8; 2],
    k: u32,
}

impl Instruction {
    const fn new(code: u16, k: u32) -> Self {
        Self {
            code,
            jumps: [0; 2],
            k,
        }
    }

    fn build(&self) -> SockFilter {
        SockFilter::new(self.code, self.jumps[0], self.jumps[1], self.k)
    }
}

/// Goes on behind these instructions where the packet is not of this direction, and jumps where it is.
fn direction(source: IpAddr, destination: IpAddr) -> Vec<Instruction> {
    let (source_at, destination_at) = match source {
        IpAddr::V4(_) => (12, 16),
        IpAddr::V6(_) => (8, 24),
    };
    let comparisons: Vec<(u32, u32)> = words(source, source_at)
        .into_iter()
        .chain(words(destination, destination_at))
        .collect();
    let length = 2 * comparisons.len() + 1;
    let mut program = Vec::with_capacity(length);
    for (offset, word) in comparisons {
        program.push(Instruction::new(LOAD_WORD, offset));
        let rest = length - program.len() - 1;
        program.push(Instruction {
            jumps: [0, rest as u8],
            ..Instruction::new(JUMP_IF_EQUAL, word)
        });
    }
    program.push(Instruction::new(JUMP, 0));
    program
}

fn words(address: IpAddr, at: u32) -> Vec<(u32, u32)> {
    let bytes = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    let words = words.iter().map(|word| u32::from_be_bytes(*word));
    (at..).step_by(4).zip(words).collect()
}

fn accept(mark: &FwmarkIs) -> Vec<Instruction> {
    let (mask, values, wanted) = match mark {
        FwmarkIs::Any => return vec![ret(SNAP_BYTES)],
        FwmarkIs::Exactly { mask, value } => (*mask, vec![*value], true),
        FwmarkIs::NoneOf { mask, values } => (*mask, values.clone(), false),
    };
    let mut program = vec![
        Instruction::new(LOAD_WORD, FWMARK),
        Instruction::new(AND, mask),
    ];
    let count = values.len();
    for (index, value) in values.into_iter().enumerate() {
        // Behind the comparisons are what to do where none holds, and where one does.
        let rest = count - index - 1;
        program.push(Instruction {
            jumps: [rest as u8 + 1, 0],
            ..Instruction::new(JUMP_IF_EQUAL, value)
        });
    }
    let [no, yes] = match wanted {
        true => [0, SNAP_BYTES],
        false => [SNAP_BYTES, 0],
    };
    program.extend([ret(no), ret(yes)]);
    program
}

const fn ret(bytes: u32) -> Instruction {
    Instruction::new(RETURN, bytes)
}

/// More than all headers have.
pub(crate) const SNAP_BYTES: u32 = 160;

// Of linux/filter.h and linux/bpf_common.h.
const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_MARK`: no byte of the packet, but its fwmark.
const FWMARK: u32 = 0xffff_f000 + 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do with a packet: how many bytes of it are shown.
    fn run(program: &[Instruction], packet: &[u8], fwmark: u32) -> u32 {
        let (mut at, mut register) = (0, 0);
        loop {
            let it = program[at];
            at += 1;
            match it.code {
                LOAD_WORD if it.k == FWMARK => register = fwmark,
                LOAD_WORD => {
                    let from = it.k as usize;
                    match packet.get(from..from + 4) {
                        Some(bytes) => register = u32::from_be_bytes(bytes.try_into().unwrap()),
                        None => return 0,
                    }
                }
                AND => register &= it.k,
                JUMP => at += it.k as usize,
                JUMP_IF_EQUAL => at += usize::from(it.jumps[usize::from(register != it.k)]),
                RETURN => return it.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    fn program(one: &str, other: &str, mark: &FwmarkIs) -> Vec<Instruction> {
        instructions(one.parse().unwrap(), other.parse().unwrap(), mark)
    }

    fn packet(source: &str, destination: &str) -> Vec<u8> {
        let address = |text: &str| match text.parse().unwrap() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let (source, destination) = (address(source), address(destination));
        let before = if source.len() == 4 { 12 } else { 8 };
        [vec![0; before], source, destination].concat()
    }

    #[test]
    fn packets_between_both_addresses_are_shown_and_no_others() {
        for [one, other, third] in [
            ["10.1.1.1", "10.2.1.2", "10.2.1.3"],
            ["fd00:1::1", "fd00:2::2", "fd00:2::3"],
        ] {
            let program = program(one, other, &FwmarkIs::Any);
            let shown = |from, to| run(&program, &packet(from, to), 0);
            assert_eq!(shown(one, other), SNAP_BYTES);
            assert_eq!(shown(other, one), SNAP_BYTES);
            for (from, to) in [(one, third), (third, one), (other, third), (one, one)] {
                assert_eq!(shown(from, to), 0, "{from} to {to}");
            }
            assert_eq!(run(&program, &[0; 10], 0), 0);
        }
    }

    #[test]
    fn fwmark_decides_under_its_mask() {
        let mask = 0xff00;
        let exactly = FwmarkIs::Exactly { mask, value: 0x200 };
        let none_of = FwmarkIs::NoneOf {
            mask,
            values: vec![0x200, 0x400],
        };
        let packet = packet("10.1.1.1", "10.2.1.2");
        let shown = |filter: &FwmarkIs, fwmark| {
            run(&program("10.1.1.1", "10.2.1.2", filter), &packet, fwmark) > 0
        };
        for (fwmark, is_exact, is_other) in [
            (0x200, true, false),
            (0x2ab, true, false),
            (0x400, false, false),
            (0x500, false, true),
            (0, false, true),
        ] {
            assert_eq!(shown(&exactly, fwmark), is_exact, "{fwmark:#x}");
            assert_eq!(shown(&none_of, fwmark), is_other, "{fwmark:#x}");
        }
    }
}
