//! The words of the program: its help and what it says of wrong arguments, in one snapshot.

mod playground;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../../../../crates/cli/tests/support/transcript.rs"]
mod transcript;

use std::process::Command;

use transcript::{Transcript, plain};

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("splitter-demo", "splitter-demo");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("no such option", &["--nonsense"]),
        ("a load above all", &["--load", "96"]),
        ("no time", &["--seconds", "0"]),
        ("one rate", &["--rates", "100"]),
        ("a rate that is none", &["--rates", "100,0"]),
        ("no round", &["--seeds", "0"]),
        ("help of the playground", &["playground", "--help"]),
        ("a policy that is none", &["playground", "--policy", "fair"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_splitter-demo"));
        // Never run: what is wrong is found before.
        command.args(arguments).args(["--splitter", "/nonexistent"]);
        let output = plain(&mut command).output();
        words.add(case, arguments, &output.expect("it can be started"));
    }
    words.compare();
}
