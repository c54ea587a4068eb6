//! The program from outside: its words, cells that it measures, and an end by a signal.

mod measures;
mod predicts;
#[allow(dead_code, reason = "shared with the tests of other commands")]
#[path = "../../../../crates/cli/tests/support/transcript.rs"]
mod transcript;

use std::process::Command;

use transcript::{Transcript, plain};

#[test]
fn words_of_the_program_are_those_reviewed() {
    let mut words = Transcript::new("fabric", "fabric");
    for (case, arguments) in [
        ("help", &["--help"][..]),
        ("no such option", &["--nonsense"]),
        ("no such cell", &["--cell", "asym9"]),
        (
            "no such cell in this shape",
            &["--leaves", "3", "--cell", "2x2-sym"],
        ),
        ("no such scheme", &["--scheme", "tr,magic"]),
        ("too many leaves", &["--leaves", "5"]),
        ("one spine", &["--spines", "1"]),
        ("too fast", &["--rate-mbit", "101"]),
        ("no seed", &["--seeds", "0"]),
        (
            "rows of nothing that is predicted",
            &["--measured", "rows.json"],
        ),
        (
            "rows that are not there",
            &["--predict", "--measured", "/nonexistent/rows.json"],
        ),
        ("no key", &["--predict", "--vary", "transport"]),
        ("prediction of what is measured", &["--predict", "--resume"]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
        command.args(arguments);
        let of_predictions = ["--predict", "--measured"];
        if !arguments.iter().any(|it| of_predictions.contains(it)) {
            // Never run: what is wrong is found before.
            command.args(["--splitter", "/nonexistent"]);
        }
        let output = plain(&mut command).output();
        words.add(case, arguments, &output.expect("it can be started"));
    }
    words.compare();
}
