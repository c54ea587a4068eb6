//! The program from outside: its words, runs that it measures, and an end by a signal.

mod measures;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../../../../crates/cli/tests/support/transcript.rs"]
mod transcript;

use std::process::Command;

use transcript::{Transcript, plain};

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("twin", "twin");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("no such option", &["--nonsense"]),
        ("more than there is", &["--loads", "0,90"]),
        ("no seed", &["--seeds", "0"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twin"));
        // Never run: what is wrong is found before.
        command.args(arguments).args(["--splitter", "/nonexistent"]);
        let output = plain(&mut command).output();
        words.add(case, arguments, &output.expect("it can be started"));
    }
    words.compare();
}
