//! `[steering]`, and what it needs of other sections.

use super::super::{Config, SteeringMode};

const MINIMAL: &str =
    "lan = 'eth0'\n[short]\ndevice = 'a'\nrate_mbit = 9\n[long]\ndevice = 'b'\nrate_mbit = 9\n";

fn parse(more: &str) -> Result<Config, String> {
    Config::parse(&format!("{more}{MINIMAL}"), "t").map_err(|error| error.to_string())
}

fn steering(lines: &str) -> Result<Config, String> {
    let text = format!("{MINIMAL}[steering]\n{lines}\n");
    Config::parse(&text, "t").map_err(|error| error.to_string())
}

#[test]
fn kernel_marks_are_used_only_where_that_is_asked_for() {
    assert_eq!(parse("").unwrap().steering.mode, SteeringMode::Dscp);
    assert_eq!(parse("").unwrap().mark_bits(), None);
    let bits = |lines| steering(lines).unwrap().mark_bits().map(|it| it.mask());
    assert_eq!(bits("mode = 'mark'"), Some(0x7e));
    assert_eq!(bits("mode = 'mark'\nmark_mask = 0xff00"), Some(0xff00));
}

#[test]
fn modes_that_exclude_each_other_are_refused_with_their_line() {
    let share = MINIMAL.replace("lan =", "policy = 'share'\nlan =");
    let refused = |text: String| Config::parse(&text, "t").unwrap_err().to_string();
    for (refused, expected) in [
        (
            refused(format!("{MINIMAL}[steering]\nmark_mask = 0x5\n")),
            "t:9: steering.mark_mask = 0x5: ",
        ),
        (
            refused(format!(
                "{MINIMAL}[steering]\nmode = 'mark'\nmark_mask = 0x3\n"
            )),
            "t:10: steering.mark_mask = 0x3: ",
        ),
        (
            refused(format!(
                "{MINIMAL}[steering]\nmode = 'mark'\n[attach]\nmode = 'native'\n"
            )),
            "t:11: attach.mode = 'native': ",
        ),
        (
            refused(format!("{share}[steering]\nmode = 'redirect'\n")),
            "t:10: steering.mode = 'redirect': ",
        ),
    ] {
        assert!(refused.starts_with(expected), "{refused}\n{expected}");
    }
    let shared = format!("{share}[steering]\nmode = 'mark'\n");
    assert!(Config::parse(&shared, "t").is_ok());
}
