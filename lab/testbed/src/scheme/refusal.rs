//! What the splitter says against a configuration before it runs.

use std::{fs, path::Path, process::Command};

use super::SchemeError;

/// Asks the program `binary` about the text of a configuration; what it says against it, if it refuses it.
/// `configuration` is given a directory as for [`Agent::launch`](super::Agent::launch).
///
/// # Errors
/// [`SchemeError::Prepare`], or [`SchemeError::Start`] where there is no such program.
pub fn refusal(
    binary: &Path,
    configuration: impl FnOnce(&Path) -> String,
) -> Result<Option<String>, SchemeError> {
    let prepare_error = |path: &Path, source| SchemeError::Prepare {
        path: path.to_owned(),
        source,
    };
    let directory =
        tempfile::tempdir().map_err(|source| prepare_error(&std::env::temp_dir(), source))?;
    let file = directory.path().join("splitter.toml");
    fs::write(&file, configuration(directory.path()))
        .map_err(|source| prepare_error(&file, source))?;
    let checked = Command::new(binary).arg("check").arg(&file).output();
    let checked = checked.map_err(|source| SchemeError::Start {
        binary: binary.to_owned(),
        border: "this machine".to_owned(),
        source,
    })?;
    if checked.status.success() {
        return Ok(None);
    }
    let said = [checked.stdout, checked.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let prefix = format!("{}:", file.display());
    Ok(Some(format!(
        "the splitter refuses it: {}",
        reason(&said, &prefix)
    )))
}

/// The first mistake that is about `balance`, or else the first one: a program that knows no balancers misses
/// what it has instead, too.
fn reason<'a>(said: &'a str, prefix: &str) -> &'a str {
    let lines = said.lines().filter(|it| it.contains(prefix));
    let about_balance = lines.clone().find(|it| it.contains(" balance"));
    let first = about_balance.or_else(|| lines.clone().next());
    let reason = first.unwrap_or("without a reason").trim();
    reason.strip_prefix(prefix).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_the_mistake_about_the_balancer() {
        let said = "error: 2 mistakes\n/t/f.toml:1:1: short is missing\n/t/f.toml:2:1: balance is unknown\n";
        assert_eq!(reason(said, "/t/f.toml:"), "2:1: balance is unknown");
        let other = "/t/f.toml:1:1: short is missing";
        assert_eq!(reason(other, "/t/f.toml:"), "1:1: short is missing");
        assert_eq!(reason("killed", "/t/f.toml:"), "without a reason");
    }

    #[test]
    fn program_that_agrees_refuses_nothing() -> Result<(), SchemeError> {
        assert_eq!(refusal(Path::new("true"), |_| String::new())?, None);
        let refused = refusal(Path::new("false"), |_| String::new())?;
        assert_eq!(
            refused.as_deref(),
            Some("the splitter refuses it: without a reason")
        );
        Ok(())
    }
}
