use super::*;
use crate::context::{Hook, Metadata};

/// An instruction by its fields.
fn instruction(code: u32, to: u8, from: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code: code as u8,
        _bitfield_align_1: [],
        _bitfield_1: bpf_insn::new_bitfield_1(to, from),
        off,
        imm,
    }
}

/// What a program on an empty frame returns and executes.
fn run_alone(instructions: &[bpf_insn]) -> Result<(u64, Counts), (usize, Fault)> {
    let mut machine = Machine::empty();
    let start = machine.frame.start();
    let mut context = Context {
        hook: Hook::Xdp,
        metadata: Metadata::default(),
        protocol: 0,
        start,
        end: start,
    };
    run(&mut machine, instructions, &mut context)
}

fn set(to: u8, number: i32) -> bpf_insn {
    instruction(BPF_ALU64 | BPF_MOV, to, 0, 0, number)
}

fn exit() -> bpf_insn {
    instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
}

#[test]
fn narrow_results_have_no_upper_half_and_division_by_zero_is_defined() {
    let cases = [
        (BPF_ALU | BPF_ADD, -1, 0, 0xffff_ffff),
        (BPF_ALU64 | BPF_ADD, -1, 0, u64::MAX),
        (BPF_ALU | BPF_ARSH, -8, 1, 0xffff_fffc),
        (BPF_ALU64 | BPF_ARSH, -8, 1, -4_i64 as u64),
        (BPF_ALU64 | BPF_RSH, -8, 1, (u64::MAX - 7) >> 1),
        (BPF_ALU64 | BPF_DIV, 7, 0, 0),
        (BPF_ALU64 | BPF_MOD, 7, 0, 7),
        (BPF_ALU | BPF_END | BPF_TO_BE, 0x1234, 16, 0x3412),
    ];
    for (code, start, operand, expected) in cases {
        let (returned, counts) =
            run_alone(&[set(0, start), instruction(code, 0, 0, 0, operand), exit()]).unwrap();
        assert_eq!(returned, expected, "{code:#x}");
        assert_eq!(counts.instructions, 3);
    }
}

#[test]
fn signed_and_unsigned_comparisons_of_both_widths_differ() {
    let goes = |code, left| {
        let program = [
            set(0, 1),
            set(2, left),
            instruction(code, 2, 0, 1, 1),
            set(0, 0),
            exit(),
        ];
        run_alone(&program).unwrap().0 == 1
    };
    assert!(goes(BPF_JMP | BPF_JGT, -1) && !goes(BPF_JMP | BPF_JSGT, -1));
    assert!(goes(BPF_JMP32 | BPF_JSLT, -1) && !goes(BPF_JMP32 | BPF_JLT, -1));
    assert!(goes(BPF_JMP | BPF_JSET, 3) && !goes(BPF_JMP | BPF_JSET, 2));
}

#[test]
fn called_function_has_a_stack_of_its_own_and_spoils_what_it_may() {
    let store = |number| instruction(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, number);
    let program = [
        set(6, 1),
        store(5),
        instruction(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL as u8, 0, 2),
        instruction(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -8, 0),
        exit(),
        set(6, 2),
        store(9),
        exit(),
    ];
    let (returned, counts) = run_alone(&program).unwrap();
    assert_eq!(returned, 5);
    let expected = Counts {
        instructions: 8,
        loads: 1,
        stores: 2,
        stack_accesses: 3,
        function_calls: 1,
        ..Counts::default()
    };
    assert_eq!(counts, expected);
    let mut spoilt = program;
    spoilt[3] = instruction(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 0, 0);
    assert_eq!(run_alone(&spoilt).unwrap().0, SPOILT);
    spoilt[3] = instruction(BPF_ALU64 | BPF_MOV | BPF_X, 0, 6, 0, 0);
    assert_eq!(run_alone(&spoilt).unwrap().0, 1);
}

#[test]
fn compare_and_exchange_writes_only_over_what_was_expected() {
    let exchange = |expected| {
        let program = [
            instruction(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 7),
            set(0, expected),
            set(2, 9),
            instruction(BPF_STX | BPF_ATOMIC | BPF_DW, 10, 2, -8, BPF_CMPXCHG as i32),
            instruction(BPF_LDX | BPF_MEM | BPF_DW, 3, 10, -8, 0),
            instruction(BPF_ALU64 | BPF_LSH, 3, 0, 0, 8),
            instruction(BPF_ALU64 | BPF_OR | BPF_X, 0, 3, 0, 0),
            exit(),
        ];
        run_alone(&program).unwrap().0
    };
    assert_eq!(exchange(7), 9 << 8 | 7);
    assert_eq!(exchange(6), 7 << 8 | 7);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let unknown = instruction(BPF_ALU64 | 0xe0, 0, 0, 0, 0);
    let nowhere = instruction(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, 3_584, 0);
    let helper = instruction(BPF_JMP | BPF_CALL, 0, 0, 0, 7);
    let forever = instruction(BPF_JMP | BPF_JA, 0, 0, -1, 0);
    let faults = [unknown, nowhere, helper, forever]
        .map(|it| run_alone(&[set(0, 0), it, exit()]).unwrap_err());
    let [unknown, nowhere, helper, forever] = faults;
    assert_eq!(unknown, (1, Fault::Opcode { opcode: 0xe7 }));
    assert!(matches!(nowhere, (1, Fault::OutOfBounds { length: 8, .. })));
    assert_eq!(helper, (1, Fault::Helper { helper: 7 }));
    assert_eq!(forever, (1, Fault::Stopped("the program did not end")));
}
