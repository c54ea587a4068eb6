//! Help as it is read in a terminal of 80 columns.

use std::{path::Path, process::Command};

use anyhow::{Context, Result};

use crate::Faults;

/// Programs that people call, as packages have them.
const PROGRAMS: [&str; 4] = ["splitter", "cloudburst", "netsim", "splitter-demo"];

const COLUMNS: usize = 80;

/// Asks each program of the directory, and each of its commands, for its help, and looks for lines that
/// such a terminal breaks.
///
/// # Errors
/// When a program cannot be run.
pub fn check(programs: &Path) -> Result<(String, Faults)> {
    let (mut faults, mut count) = (Faults::new(), 0);
    for program in PROGRAMS.into_iter().filter(|it| programs.join(it).exists()) {
        let mut calls = vec![Vec::new()];
        while let Some(call) = calls.pop() {
            let help = help(&programs.join(program), &call)?;
            let name = [&[program.to_owned()], &call[..]].concat().join(" ");
            let wide = help.lines().filter(|it| it.chars().count() > COLUMNS);
            faults.extend(
                wide.map(|line| format!("help of {name}: more than {COLUMNS} columns: {line}")),
            );
            count += 1;
            let commands = commands_in(&help);
            calls.extend(commands.map(|command| [&call[..], &[command.to_owned()]].concat()));
        }
    }
    Ok((format!("{count} read at {COLUMNS} columns"), faults))
}

fn help(program: &Path, call: &[String]) -> Result<String> {
    let output = Command::new(program)
        .args(call)
        .arg("--help")
        .env("COLUMNS", COLUMNS.to_string())
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Names of the commands that a help lists; `help` repeats the others.
fn commands_in(help: &str) -> impl Iterator<Item = &str> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    #[test]
    fn help_of_a_command_that_is_too_wide_is_found_with_its_name() {
        let programs = tempfile::tempdir().unwrap();
        let program = programs.path().join("netsim");
        let script = "#!/bin/sh\n\
                      case $1 in\n\
                      run) printf '%081d\\n%080d\\n' 0 0 ;;\n\
                      *) printf 'Usage\\n\\nCommands:\\n  run   Runs\\n        on\\n  help  Helps\\n\\nOptions:\\n' ;;\n\
                      esac\n";
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let (summary, faults) = check(programs.path()).unwrap();
        assert_eq!(summary, "2 read at 80 columns");
        let [fault] = &faults[..] else {
            panic!("{faults:?}");
        };
        assert!(fault.starts_with("help of netsim run: "), "{fault}");
    }
}
