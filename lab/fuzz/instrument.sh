#!/bin/sh
# Compiles crates of this repository as libFuzzer needs them, and all others as fast as they can be:
# what is counted in curves and ciphers says nothing, and makes them seven times as slow. Cargo calls
# it as RUSTC_WRAPPER; FUZZED_ROOT is the repository. Build scripts, which no target is named for, are
# left alone. The flags are those of `cargo fuzz --sanitizer none` without -Ccodegen-units=1 (in pieces
# it is compiled on all processors, in half the time on two) and -Clink-dead-code.
case "$CARGO_MANIFEST_DIR/ $*" in
"${FUZZED_ROOT:?}"/*" --target "*)
    exec "$@" --cfg fuzzing \
        -Cpasses=sancov-module \
        -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares \
        -Cdebug-assertions
    ;;
*" --target "*)
    # Curves are half of what the liar's handshakes take.
    exec "$@" -Ctarget-cpu=native
    ;;
*)
    exec "$@"
    ;;
esac
