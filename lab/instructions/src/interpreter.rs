//! Runs instructions one by one and counts them.
//!
//! No library does: `rbpf` knows no compare-and-exchange, and counts nothing. What is here is
//! instruction set v3 (RFC 9669 without division by signed numbers and the like), which is what the
//! programs are compiled for.

use std::collections::BTreeSet;

use aya_obj::generated::*;

use crate::context::{CONTEXT, Context};
use crate::counts::Counts;
use crate::fault::Fault;
use crate::helpers::{self, MAPS};
use crate::machine::Machine;
use crate::maps::Owner;

/// Of each function's frame, and how many functions may be in the middle of something.
const FRAME_BYTES: usize = 512;
const DEPTH: usize = 8;

/// Of all frames.
pub(crate) const STACK_BYTES: usize = FRAME_BYTES * DEPTH;

/// The verifier follows a million; what runs longer has a loop that does not end.
const MOST_INSTRUCTIONS: u64 = 1_000_000;

/// In registers whose content a call has spoilt: no address, and no number that anybody expects.
const SPOILT: u64 = 0xdead_beef_dead_beef;

const FRAME_POINTER: usize = 10;

/// Of a processor's cache.
const LINE_BYTES: u64 = 64;

/// Runs a program until it exits: what it returned, and what it executed. A fault comes with the
/// number of its instruction.
pub(crate) fn run(
    machine: &mut Machine,
    instructions: &[bpf_insn],
    context: &mut Context,
) -> Result<(u64, Counts), (usize, Fault)> {
    let mut registers = [SPOILT; 11];
    registers[1] = CONTEXT;
    registers[FRAME_POINTER] = machine.stack.start() + FRAME_BYTES as u64;
    let mut run = Running {
        machine,
        context,
        registers,
        counts: Counts::default(),
        lines: BTreeSet::new(),
        callers: Vec::new(),
        next: 0,
    };
    loop {
        let at = run.next;
        let step = run.step(instructions).map_err(|fault| (at, fault))?;
        if let Step::Exit(returned) = step {
            return Ok((returned, run.counted()));
        }
    }
}

struct Running<'a> {
    machine: &'a mut Machine,
    context: &'a mut Context,
    registers: [u64; 11],
    counts: Counts,
    /// The cache lines that were written, by their numbers.
    lines: BTreeSet<u64>,
    callers: Vec<Caller>,
    next: usize,
}

/// What a function finds as it was when the one that it called is done.
struct Caller {
    returns_to: usize,
    registers: [u64; 4],
}

enum Step {
    On,
    Exit(u64),
}

impl Running<'_> {
    fn step(&mut self, instructions: &[bpf_insn]) -> Result<Step, Fault> {
        let Some(instruction) = instructions.get(self.next) else {
            return Err(Fault::Stopped("the program ran beyond its instructions"));
        };
        self.counts.instructions += 1;
        if self.counts.instructions > MOST_INSTRUCTIONS {
            return Err(Fault::Stopped("the program did not end"));
        }
        self.next += 1;
        match u32::from(instruction.code & 7) {
            BPF_ALU | BPF_ALU64 => self.compute(instruction)?,
            BPF_JMP | BPF_JMP32 => return self.jump(instruction),
            BPF_LD => self.load_constant(instruction, instructions.get(self.next))?,
            BPF_LDX => self.load(instruction)?,
            BPF_ST | BPF_STX => self.store(instruction)?,
            _ => return Err(unknown(instruction)),
        }
        Ok(Step::On)
    }

    fn compute(&mut self, instruction: &bpf_insn) -> Result<(), Fault> {
        let is_wide = u32::from(instruction.code & 7) == BPF_ALU64;
        let operation = u32::from(instruction.code & 0xf0);
        let to = usize::from(instruction.dst_reg());
        let (left, right) = (self.registers[to], self.operand(instruction));
        if instruction.off != 0 {
            return Err(unknown(instruction));
        }
        self.registers[to] = match operation {
            BPF_END if !is_wide => swapped(instruction, left)?,
            _ if is_wide => wide(operation, left, right).ok_or_else(|| unknown(instruction))?,
            _ => {
                let result = narrow(operation, left as u32, right as u32);
                result.ok_or_else(|| unknown(instruction))?.into()
            }
        };
        Ok(())
    }

    fn jump(&mut self, instruction: &bpf_insn) -> Result<Step, Fault> {
        let is_wide = u32::from(instruction.code & 7) == BPF_JMP;
        match u32::from(instruction.code & 0xf0) {
            BPF_CALL if is_wide => self.call(instruction)?,
            BPF_EXIT if is_wide => return Ok(self.exit()),
            BPF_JA if is_wide => self.go(instruction.off.into()),
            condition => {
                let left = self.registers[usize::from(instruction.dst_reg())];
                let right = self.operand(instruction);
                let holds = if is_wide {
                    holds(condition, left, right, left as i64, right as i64)
                } else {
                    let (left, right) = (left as u32, right as u32);
                    holds(condition, left, right, left as i32, right as i32)
                };
                if holds.ok_or_else(|| unknown(instruction))? {
                    self.go(instruction.off.into());
                }
            }
        }
        Ok(Step::On)
    }

    /// From the instruction after this one.
    fn go(&mut self, offset: i32) {
        self.next = self.next.wrapping_add_signed(offset as isize);
    }

    fn call(&mut self, instruction: &bpf_insn) -> Result<(), Fault> {
        if u32::from(instruction.src_reg()) == BPF_PSEUDO_CALL {
            if self.callers.len() + 1 == DEPTH {
                return Err(Fault::Stopped("functions call each other too deep"));
            }
            self.counts.function_calls += 1;
            self.callers.push(Caller {
                returns_to: self.next,
                registers: self.saved(),
            });
            self.registers[FRAME_POINTER] += FRAME_BYTES as u64;
            self.go(instruction.imm);
            return Ok(());
        }
        let [_, arguments @ .., _, _, _, _, _] = self.registers;
        let helper = instruction.imm as u32;
        let answer = helpers::call(self.machine, self.context, helper, arguments)?;
        self.counts.helper_calls += u64::from(answer.is_call);
        self.registers[0] = answer.value;
        self.registers[1..6].fill(SPOILT);
        Ok(())
    }

    fn exit(&mut self) -> Step {
        let Some(caller) = self.callers.pop() else {
            return Step::Exit(self.registers[0]);
        };
        self.next = caller.returns_to;
        self.registers[1..6].fill(SPOILT);
        self.registers[6..10].copy_from_slice(&caller.registers);
        self.registers[FRAME_POINTER] -= FRAME_BYTES as u64;
        Step::On
    }

    const fn saved(&self) -> [u64; 4] {
        let [_, _, _, _, _, _, saved @ .., _] = self.registers;
        saved
    }

    /// An instruction of two, of which the second holds the upper half.
    fn load_constant(&mut self, first: &bpf_insn, second: Option<&bpf_insn>) -> Result<(), Fault> {
        let Some(second) = second.filter(|_| u32::from(first.code) == BPF_LD | BPF_IMM | BPF_DW)
        else {
            return Err(unknown(first));
        };
        self.next += 1;
        let number = first.imm as u32;
        let value = match u32::from(first.src_reg()) {
            0 => u64::from(number) | u64::from(second.imm as u32) << 32,
            BPF_PSEUDO_MAP_FD => MAPS + u64::from(number),
            BPF_PSEUDO_MAP_VALUE => {
                let map = &self.machine.maps[number as usize];
                let value = map.lookup(&0_u32.to_le_bytes()).unwrap_or(0);
                value.wrapping_add_signed(second.imm.into())
            }
            _ => return Err(unknown(first)),
        };
        self.registers[usize::from(first.dst_reg())] = value;
        Ok(())
    }

    fn load(&mut self, instruction: &bpf_insn) -> Result<(), Fault> {
        if u32::from(instruction.code & 0xe0) != BPF_MEM {
            return Err(unknown(instruction));
        }
        let length = length(instruction);
        let address = self.address(instruction.src_reg(), instruction);
        self.counts.loads += 1;
        self.count_stack(address);
        let value = if is_context(address) {
            self.context.load(address - CONTEXT, length)?
        } else {
            self.machine.memory.load(address, length)?
        };
        self.registers[usize::from(instruction.dst_reg())] = value;
        Ok(())
    }

    fn store(&mut self, instruction: &bpf_insn) -> Result<(), Fault> {
        let length = length(instruction);
        let address = self.address(instruction.dst_reg(), instruction);
        self.counts.stores += 1;
        self.count_stack(address);
        self.lines.insert(address / LINE_BYTES);
        let value = if u32::from(instruction.code & 7) == BPF_ST {
            instruction.imm as u64
        } else {
            self.registers[usize::from(instruction.src_reg())]
        };
        match u32::from(instruction.code & 0xe0) {
            BPF_MEM if is_context(address) => self.context.store(address - CONTEXT, length, value),
            BPF_MEM => self.machine.memory.store(address, length, value),
            BPF_ATOMIC => self.atomic(instruction, address, length, value),
            _ => Err(unknown(instruction)),
        }
    }

    fn atomic(
        &mut self,
        instruction: &bpf_insn,
        address: u64,
        length: usize,
        value: u64,
    ) -> Result<(), Fault> {
        self.counts.atomics += 1;
        let mask = u64::MAX >> (64 - 8 * length);
        let found = self.machine.memory.load(address, length)?;
        let operation = instruction.imm as u32;
        let (written, fetches_into) = match operation & !BPF_FETCH {
            _ if operation == BPF_CMPXCHG => {
                let is_as_expected = found == self.registers[0] & mask;
                let written = if is_as_expected { value } else { found };
                (written, Some(0))
            }
            _ if operation == BPF_XCHG => (value, Some(usize::from(instruction.src_reg()))),
            BPF_ADD => (found.wrapping_add(value), None),
            BPF_OR => (found | value, None),
            BPF_AND => (found & value, None),
            BPF_XOR => (found ^ value, None),
            _ => return Err(unknown(instruction)),
        };
        let fetches = operation & BPF_FETCH != 0;
        let source = usize::from(instruction.src_reg());
        if let Some(into) = fetches_into.or(fetches.then_some(source)) {
            self.registers[into] = found;
        }
        self.machine.memory.store(address, length, written)
    }

    fn address(&self, register: u8, instruction: &bpf_insn) -> u64 {
        self.registers[usize::from(register)].wrapping_add_signed(instruction.off.into())
    }

    fn operand(&self, instruction: &bpf_insn) -> u64 {
        if u32::from(instruction.code) & BPF_X != 0 {
            self.registers[usize::from(instruction.src_reg())]
        } else {
            instruction.imm as u64
        }
    }

    /// The counts, with the lines that maps have of those that were written.
    fn counted(&self) -> Counts {
        let of = |owner| {
            let maps = self.machine.maps.iter().filter(|it| it.owner == owner);
            let maps: Vec<_> = maps.collect();
            let lines = self.lines.iter().map(|line| line * LINE_BYTES);
            lines
                .filter(|line| maps.iter().any(|it| it.holds(*line)))
                .count() as u64
        };
        Counts {
            flow_lines: of(Owner::Flow),
            shared_lines: of(Owner::All),
            ..self.counts
        }
    }

    fn count_stack(&mut self, address: u64) {
        self.counts.stack_accesses += u64::from(self.machine.stack.contains(address));
    }
}

const fn is_context(address: u64) -> bool {
    address >= CONTEXT
}

const fn unknown(instruction: &bpf_insn) -> Fault {
    Fault::Opcode {
        opcode: instruction.code,
    }
}

/// Of the bytes that are read or written.
fn length(instruction: &bpf_insn) -> usize {
    match u32::from(instruction.code & 0x18) {
        BPF_B => 1,
        BPF_H => 2,
        BPF_W => 4,
        _ => 8,
    }
}

fn wide(operation: u32, left: u64, right: u64) -> Option<u64> {
    Some(match operation {
        BPF_ADD => left.wrapping_add(right),
        BPF_SUB => left.wrapping_sub(right),
        BPF_MUL => left.wrapping_mul(right),
        BPF_DIV => left.checked_div(right).unwrap_or(0),
        BPF_MOD => left.checked_rem(right).unwrap_or(left),
        BPF_OR => left | right,
        BPF_AND => left & right,
        BPF_XOR => left ^ right,
        BPF_LSH => left.wrapping_shl(right as u32),
        BPF_RSH => left.wrapping_shr(right as u32),
        BPF_ARSH => (left as i64).wrapping_shr(right as u32) as u64,
        BPF_NEG => left.wrapping_neg(),
        BPF_MOV => right,
        _ => return None,
    })
}

fn narrow(operation: u32, left: u32, right: u32) -> Option<u32> {
    Some(match operation {
        BPF_LSH => left.wrapping_shl(right),
        BPF_RSH => left.wrapping_shr(right),
        BPF_ARSH => (left as i32).wrapping_shr(right) as u32,
        // The lower halves decide all others.
        _ => wide(operation, left.into(), right.into())? as u32,
    })
}

/// To the order of bytes in packets, or from it.
fn swapped(instruction: &bpf_insn, number: u64) -> Result<u64, Fault> {
    let is_big_endian = u32::from(instruction.code) & BPF_TO_BE != 0;
    Ok(match (is_big_endian, instruction.imm) {
        (true, 16) => (number as u16).swap_bytes().into(),
        (true, 32) => (number as u32).swap_bytes().into(),
        (true, 64) => number.swap_bytes(),
        (false, 16) => (number as u16).into(),
        (false, 32) => (number as u32).into(),
        (false, 64) => number,
        _ => return Err(unknown(instruction)),
    })
}

fn holds<U, S>(condition: u32, left: U, right: U, signed_left: S, signed_right: S) -> Option<bool>
where
    U: Copy + Ord + Into<u64>,
    S: Ord,
{
    Some(match condition {
        BPF_JEQ => left == right,
        BPF_JNE => left != right,
        BPF_JGT => left > right,
        BPF_JGE => left >= right,
        BPF_JLT => left < right,
        BPF_JLE => left <= right,
        BPF_JSET => left.into() & right.into() != 0,
        BPF_JSGT => signed_left > signed_right,
        BPF_JSGE => signed_left >= signed_right,
        BPF_JSLT => signed_left < signed_right,
        BPF_JSLE => signed_left <= signed_right,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
