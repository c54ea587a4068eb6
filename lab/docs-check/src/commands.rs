//! Command lines of the pages, held against the programs that they call.
//!
//! Each is parsed by its program, with `--help` behind it: what the program does not know is refused
//! before help is printed, and nothing else is done.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    Faults,
    pages::{Block, Page},
    shell,
};

/// Programs of the project that pages call by name.
const PROGRAMS: [&str; 3] = ["splitter", "cloudburst", "netsim"];

/// Tasks that hand all their arguments to a program, and that with the arguments before them.
const HANDED_ON: [(&str, &str, &[&str]); 11] = [
    ("bond", "bond", &[]),
    ("twin", "twin", &[]),
    ("fabric", "fabric", &[]),
    ("demo", "splitter-demo", &[]),
    ("playground", "splitter-demo", &["playground"]),
    ("msgbench", "msgbench", &[]),
    ("scale", "scale", &[]),
    ("count-instructions", "instructions", &[]),
    ("reproduce", "reproduction", &["reproduce"]),
    ("codec-overhead", "reproduction", &["codec-overhead"]),
    ("ns3", "reproduction", &["ns3"]),
];

/// Packages that `cargo run` is shown with, and their programs.
const PACKAGES: [(&str, &str); 3] = [
    ("flow-netsim", "netsim"),
    ("splitter-agent", "splitter"),
    ("cloudburst-cli", "cloudburst"),
];

/// Checks all commands in blocks of shell, and those in spans as far as they are written out.
///
/// # Errors
/// When a program cannot be run, or no command is found.
pub fn check(root: &Path, pages: &[Page], programs: &Path) -> Result<(String, Faults)> {
    let mut check = Check {
        root,
        programs,
        known: BTreeMap::new(),
        faults: Faults::new(),
        counts: [0; 3],
    };
    for page in pages {
        for block in page.blocks.iter().filter(|it| shell::is_shell(it)) {
            check.block(page, block)?;
        }
        // What is gone by now is named there.
        let names_the_past = page.path == Path::new("CHANGELOG.md");
        for (line, span) in page.spans.iter().filter(|_| !names_the_past) {
            check.span(page, *line, span)?;
        }
    }
    let [own, others, spans] = check.counts;
    ensure!(own > 0 && spans > 0, "no page shows a command");
    let summary = format!(
        "{own} in blocks of shell and {spans} in text parsed by their programs, {others} are others'"
    );
    Ok((summary, check.faults))
}

struct Check<'a> {
    root: &'a Path,
    programs: &'a Path,
    /// What programs answered, by the command line.
    known: BTreeMap<Vec<String>, Answer>,
    faults: Faults,
    /// Commands of ours and of others in blocks, and of ours in spans.
    counts: [usize; 3],
}

#[derive(Clone)]
struct Answer {
    is_good: bool,
    text: String,
}

impl Check<'_> {
    fn block(&mut self, page: &Page, block: &Block) -> Result<()> {
        let commands = match shell::commands(block) {
            Ok(commands) => commands,
            Err(line) => {
                let place = page.place(line);
                self.faults.push(format!("{place}: quotes do not end"));
                return Ok(());
            }
        };
        for command in commands {
            let place = page.place(command.line);
            let words: Vec<&str> = command.words.iter().map(|it| &**it).collect();
            if let ["cargo", rest @ ..] = &words[..] {
                self.cargo(&place, rest);
            }
            let Some(mut call) = called(&words) else {
                self.counts[1] += 1;
                continue;
            };
            self.counts[0] += 1;
            call.push("--help".to_owned());
            let answer = self.ask(call)?;
            if !answer.is_good {
                let why = answer.text.lines().next().unwrap_or_default();
                let shown = command.words.join(" ");
                self.faults.push(format!("{place}: `{shown}`: {why}"));
            }
        }
        Ok(())
    }

    /// Commands in text have names in the place of values: their names and flags alone are looked at.
    fn span(&mut self, page: &Page, line: usize, span: &str) -> Result<()> {
        let words: Vec<&str> = span.split_whitespace().collect();
        let Some(call) = called(&words).filter(|call| call.len() > 1) else {
            return Ok(());
        };
        let is_name = |word: &&String| {
            word.chars().all(|it| it.is_ascii_lowercase() || it == '-') && !word.starts_with('-')
        };
        let names = call.iter().take_while(is_name).count();
        if names < 2 {
            return Ok(());
        }
        self.counts[2] += 1;
        // The second name may be a value, or a command of the first.
        let mut help = String::new();
        for names in 2..=names.min(3) {
            let mut call = call[..names].to_vec();
            call.push("--help".to_owned());
            let answer = self.ask(call)?;
            if names == 2 && !answer.is_good {
                let place = page.place(line);
                self.faults
                    .push(format!("{place}: `{span}`: no such command"));
                return Ok(());
            }
            help.push_str(&answer.text);
        }
        for flag in call.iter().filter(|word| word.starts_with("--")) {
            let flag = flag.split(['=', ',', '[', ']']).next().unwrap_or_default();
            let is_known = help.split(|it: char| !(it == '-' || it.is_alphanumeric()));
            if !is_known.into_iter().any(|word| word == flag) {
                let place = page.place(line);
                self.faults
                    .push(format!("{place}: `{span}`: there is no {flag}"));
            }
        }
        Ok(())
    }

    /// Packages, paths and targets that a call of cargo names exist.
    fn cargo(&mut self, place: &str, words: &[&str]) {
        let own = words.split(|it| *it == "--").next().unwrap_or_default();
        for (flag, value) in own.iter().zip(own.iter().skip(1)) {
            let is_missing = match *flag {
                "--path" => !self.root.join(value).join("Cargo.toml").is_file(),
                "-p" | "--package" => !self.has_package(value),
                _ => false,
            };
            if is_missing {
                self.faults.push(format!("{place}: there is no {value}"));
            }
        }
    }

    /// Each package of the workspace has an entry without a source in the lock file.
    fn has_package(&self, name: &str) -> bool {
        let lock = std::fs::read_to_string(self.root.join("Cargo.lock")).unwrap_or_default();
        lock.contains(&format!("name = \"{name}\"\n"))
    }

    fn ask(&mut self, call: Vec<String>) -> Result<Answer> {
        if let Some(answer) = self.known.get(&call) {
            return Ok(answer.clone());
        }
        let program: PathBuf = self.programs.join(&call[0]);
        let output = Command::new(&program)
            .args(&call[1..])
            .env("COLUMNS", "100")
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let is_good = output.status.success();
        let text = if is_good {
            output.stdout
        } else {
            output.stderr
        };
        let answer = Answer {
            is_good,
            text: String::from_utf8_lossy(&text).into_owned(),
        };
        self.known.insert(call, answer.clone());
        Ok(answer)
    }
}

/// The program of ours that words call, with its arguments.
fn called(words: &[&str]) -> Option<Vec<String>> {
    let owned = |program: &str, before: &[&str], rest: &[&str]| {
        let words = [&[program], before, rest].concat();
        Some(words.into_iter().map(str::to_owned).collect())
    };
    match words {
        // Its program is built by nothing but the task.
        ["cargo", "xtask", "congestion", ..] => None,
        ["cargo", "xtask", task, rest @ ..] => {
            match HANDED_ON.iter().find(|(name, ..)| name == task) {
                Some((_, program, before)) => owned(program, before, rest),
                None => owned("xtask", &[task], rest),
            }
        }
        ["cargo", "run", rest @ ..] => {
            let at = rest.iter().position(|it| *it == "--")?;
            let package = PACKAGES
                .iter()
                .find(|(name, _)| rest[..at].contains(name))?;
            owned(package.1, &[], &rest[at + 1..])
        }
        [program, rest @ ..] => {
            let name = program.rsplit('/').next().unwrap_or(program);
            PROGRAMS.contains(&name).then(|| owned(name, &[], rest))?
        }
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// A program that knows one command and one flag.
    const PROGRAM: &str = "#!/bin/sh\n\
        [ \"$1\" = run ] || { echo \"error: no command $1\" >&2; exit 2; }\n\
        for word; do case $word in --fast|--help|run) ;; *) echo \"error: no $word\" >&2; exit 2;; esac; done\n\
        echo '      --fast  Do it soon'\n";

    #[test]
    fn what_a_program_does_not_know_is_found_with_its_place() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("splitter");
        fs::write(&program, PROGRAM).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(place.path().join("Cargo.lock"), "name = \"here\"\n").unwrap();
        let text = "`splitter run --fast` `splitter gone` `splitter run --gone=N`\n\n```sh\n\
                    sudo splitter run --fast\nsplitter run --gone\ncargo test -p here\ncargo test -p gone\n```\n";
        let (summary, faults) =
            check(place.path(), &[Page::parse("a.md", text)], place.path()).unwrap();
        assert!(
            summary.starts_with("2 in blocks of shell and 3 in text"),
            "{summary}"
        );
        assert_eq!(
            faults,
            [
                "a.md:5: `splitter run --gone`: error: no --gone",
                "a.md:7: there is no gone",
                "a.md:1: `splitter gone`: no such command",
                "a.md:1: `splitter run --gone=N`: there is no --gone",
            ]
        );
    }
}
