//! Holds what pages show of a command's output against what it printed.
//!
//! Numbers, addresses and their units may be others: they are compared by pattern. A line `...` stands for any
//! lines, and `…` in a line for any text.

use crate::pages::Block;

/// Stands in front of each command's output.
const SEPARATOR: char = '\u{1e}';

/// Prints the separator, in a script.
const SEPARATE: &str = "printf '\\036\\n'\n";

/// Returns what a reader types, so that the output of each command can be told from the next one's.
pub fn script(block: &Block) -> String {
    if block.language != "console" {
        return block.text.clone();
    }
    let typed = block.text.lines().filter_map(|it| it.strip_prefix("$ "));
    typed.map(|line| format!("{SEPARATE}{line}\n")).collect()
}

/// Tells blocks that show output: consoles with lines that are typed by nobody, and what follows a block of `sh`.
pub fn shows_output(block: &Block, next: Option<&Block>) -> bool {
    match &*block.language {
        "console" => block.text.lines().any(|line| !line.starts_with("$ ")),
        _ => shown_behind(next).is_some(),
    }
}

fn shown_behind(next: Option<&Block>) -> Option<&Block> {
    next.filter(|it| it.follows && ["text", "json"].contains(&&*it.language))
}

/// Finds the first line that a block, or the one behind it, shows and its commands did not print.
pub fn missing(block: &Block, next: Option<&Block>, printed: &str) -> Option<String> {
    if block.language != "console" {
        // Of several commands a page shows the lines that it is about.
        let shown = shown_behind(next)?;
        let mut printed = printed.lines();
        let mut shown = shown
            .text
            .lines()
            .filter(|it| !is_gap(it) && !it.trim().is_empty());
        let missing = shown.find(|line| !printed.any(|it| is_alike(line, it)))?;
        return Some(missing.to_owned());
    }
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for line in block.text.lines() {
        match (line.starts_with("$ "), commands.last_mut()) {
            (false, Some(shown)) => shown.push(line),
            _ => commands.push(Vec::new()),
        }
    }
    let outputs = printed.split(SEPARATOR).skip(1);
    let outputs = outputs.chain(std::iter::repeat(""));
    let mut each = commands.iter().zip(outputs);
    each.find_map(|(shown, output)| {
        let output: Vec<&str> = output.trim_matches('\n').lines().collect();
        let is_shown = !shown.is_empty();
        is_shown.then(|| compare(shown, &output).err()).flatten()
    })
}

/// Holds all shown lines against all printed ones; returns the first that is not there.
fn compare(shown: &[&str], printed: &[&str]) -> Result<(), String> {
    let mut rest = printed;
    let parts: Vec<&[&str]> = shown.split(|line| is_gap(line)).collect();
    for (number, part) in parts.iter().enumerate() {
        let is_last = number + 1 == parts.len();
        let fits = |at: &usize| {
            let lines = rest.get(*at..*at + part.len());
            lines.is_some_and(|lines| part.iter().zip(lines).all(|(a, b)| is_alike(a, b)))
        };
        let places = 0..=rest.len().saturating_sub(part.len());
        let found = match (number, is_last) {
            (0, _) => Some(0).filter(fits),
            // What comes last is at the end.
            (_, true) => Some(rest.len().saturating_sub(part.len())).filter(fits),
            _ => places.into_iter().find(fits),
        };
        let Some(at) = found else {
            let is_missing = |line: &&&str| !rest.iter().any(|it| is_alike(line, it));
            let line = part.iter().find(is_missing).or(part.first());
            return Err((*line.unwrap_or(&"")).to_owned());
        };
        rest = &rest[at + part.len()..];
    }
    match rest {
        [] => Ok(()),
        _ if parts.len() > 1 => Ok(()),
        [more, ..] => Err(format!("(end), but {more:?} follows")),
    }
}

fn is_gap(line: &str) -> bool {
    line.trim() == "..."
}

/// Compares two lines as far as they do not differ from machine to machine.
fn is_alike(shown: &str, printed: &str) -> bool {
    let printed = pattern(printed);
    let mut rest = &*printed;
    let mut parts = shown.split('…').map(pattern).enumerate().peekable();
    while let Some((number, part)) = parts.next() {
        let is_last = parts.peek().is_none();
        let at = match (number, is_last) {
            (0, true) => return rest == part,
            (0, false) => rest.starts_with(&part).then_some(0),
            (_, true) => rest.ends_with(&part).then(|| rest.len() - part.len()),
            _ => rest.find(&part),
        };
        let Some(at) = at else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

const TIMES: [&str; 8] = ["ns", "µs", "us", "ms", "s", "min", "h", "days"];
const SIZES: [&str; 5] = ["B", "kB", "KiB", "MiB", "GiB"];

/// A line with a sign in the place of each number and address and its unit, and one space between words.
fn pattern(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_behind_number = words.last().is_some_and(|it| it.ends_with('#'));
        let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
        let unit = match bare {
            _ if !is_behind_number => None,
            _ if TIMES.contains(&bare) => Some("TIME"),
            _ if SIZES.contains(&bare) => Some("SIZE"),
            _ => None,
        };
        words.push(match unit {
            Some(unit) => format!("{unit}{}", &word[bare.len()..]),
            None => without_numbers(word),
        });
    }
    words.join(" ")
}

/// Replaces what is written in digits, hexadecimal ones too, with what stands between them.
fn without_numbers(word: &str) -> String {
    let is_inside = |it: char| it.is_ascii_alphanumeric() || ".:,".contains(it);
    let mut out = String::new();
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|it| !is_inside(it)).unwrap_or(rest.len());
        if end == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let run = &rest[..end];
        let number = run.trim_end_matches([',', ':', '.']);
        let is_number = number.contains(|it: char| it.is_ascii_digit())
            && number
                .chars()
                .all(|it| it.is_ascii_hexdigit() || ".:,".contains(it));
        match is_number {
            true => {
                out.push('#');
                out.push_str(&run[number.len()..]);
            }
            false => out.push_str(run),
        }
        rest = &rest[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Page;

    fn missing_of(text: &str, printed: &str) -> Option<String> {
        let page = Page::parse("a.md", text);
        let next = page.blocks.get(1);
        assert!(shows_output(&page.blocks[0], next));
        missing(&page.blocks[0], next, printed)
    }

    #[test]
    fn a_console_is_held_against_what_each_command_printed() {
        let text = "```console\n$ ready\nready\n$ quiet\n$ status\nup: 12 flows\n...\nlast of 10.1.0.2, 3 s ago\n```\n";
        let printed = |status: &str| format!("\u{1e}\nready\n\u{1e}\nx\n\u{1e}\n{status}");
        let good = "up:  3 flows\nmore\nmore\nlast of 2001:db8::1, 200 ms ago\n";
        assert_eq!(missing_of(text, &printed(good)), None);
        for (wrong, line) in [
            (
                "up: 3 flows\nlast of 10.1.0.2, 3 s ago\nmore\n",
                "last of 10.1.0.2, 3 s ago",
            ),
            (
                "more\nup: 3 flows\nlast of 10.1.0.2, 3 s ago\n",
                "up: 12 flows",
            ),
            ("up: no flows\nlast of 10.1.0.2, 3 s ago\n", "up: 12 flows"),
            ("up: 3 flows\n", "last of 10.1.0.2, 3 s ago"),
        ] {
            assert_eq!(
                missing_of(text, &printed(wrong)).as_deref(),
                Some(line),
                "{wrong}"
            );
        }
        let more = missing_of("```console\n$ a\none\n```\n", "\u{1e}\none\ntwo\n");
        assert_eq!(more.as_deref(), Some("(end), but \"two\" follows"));
    }

    #[test]
    fn lines_behind_a_block_of_sh_are_printed_in_their_order() {
        let text = "```sh\na\nb\n```\n\n```text\none 1\n...\ntwo…end\n```\n";
        assert_eq!(missing_of(text, "x\none 7\ny\ntwo of the end\n"), None);
        let wrong = missing_of(text, "two of the end\none 7\n");
        assert_eq!(wrong.as_deref(), Some("two…end"));
    }

    #[test]
    fn what_stands_behind_other_text_is_no_output() {
        let text = "```sh\na\n```\n\nThe log has:\n\n```text\none\n```\n";
        let page = Page::parse("a.md", text);
        assert!(!shows_output(&page.blocks[0], page.blocks.get(1)));
        let quiet = Page::parse("a.md", "```console\n$ a\n$ b\n```\n");
        assert!(!shows_output(&quiet.blocks[0], None));
    }

    #[test]
    fn names_of_devices_are_no_numbers() {
        assert_eq!(
            pattern("eth0: IPv4 0x7e  dead 7.5 MiB, 1,024"),
            "eth0: IPv4 0x7e dead # SIZE, #"
        );
        assert!(!is_alike("wan0 is down", "wan1 is down"));
        assert!(is_alike(
            "key 3f9a02c1, [::1]:80",
            "key 00000000, [2001:db8::7]:443"
        ));
    }
}
