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
fn marks_are_beside_packets_only_where_that_is_asked_for() {
    assert_eq!(parse("").unwrap().steering.mode, SteeringMode::Dscp);
    assert_eq!(parse("").unwrap().mark_bits(), None);
    let bits = |lines| steering(lines).unwrap().mark_bits().map(|it| it.mask());
    assert_eq!(bits("mode = 'mark'"), Some(0x3f00_0000));
    assert_eq!(bits("mode = 'mark'\nmark_mask = 0xff00"), Some(0xff00));
}

#[test]
fn what_cannot_work_is_refused_with_line_and_remedy() {
    let share = MINIMAL.replace("lan =", "policy = 'share'\nlan =");
    let refused = |text: String| Config::parse(&text, "t").unwrap_err().to_string();
    for (told, expected) in [
        (
            refused(format!("{MINIMAL}[steering]\nmark_mask = 0x5\n")),
            "t:9: steering.mark_mask = 0x5: its bits are not next to each other; give one run of bits",
        ),
        (
            refused(format!(
                "{MINIMAL}[steering]\nmode = 'mark'\nmark_mask = 0x3\n"
            )),
            "t:10: steering.mark_mask = 0x3: its 2 bits have no room for marks.short, which is 4; give a mask of more bits",
        ),
        (
            refused(format!(
                "{MINIMAL}[steering]\nmode = 'mark'\n[attach]\nmode = 'native'\n"
            )),
            "t:11: attach.mode = 'native': steering.mode = \"mark\" attaches no XDP program",
        ),
        (
            refused(format!("{share}[steering]\nmode = 'redirect'\n")),
            "t:10: steering.mode = 'redirect': what is redirected goes past the queues that policy = \"share\" puts in front of the tunnels",
        ),
    ] {
        assert!(told.starts_with(expected), "{told}\n{expected}");
    }
    let shared = format!("{share}[steering]\nmode = 'mark'\n");
    assert!(Config::parse(&shared, "t").is_ok());
}
