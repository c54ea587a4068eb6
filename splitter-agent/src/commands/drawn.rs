//! Lines of a configuration, drawn below what is wrong with them.

use std::io::{self, IsTerminal};

use flow_cli::describe;
use splitter_config::{ConfigError, Diagnostic, Paint, drawn};
use splitter_control::ControlError;

/// Chooses colours for terminals whose user has not declined them (<https://no-color.org>).
pub(crate) fn paint(stream: &impl IsTerminal) -> Paint {
    let is_declined = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
    match stream.is_terminal() && !is_declined {
        true => Paint::Colours,
        false => Paint::Plain,
    }
}

/// Describes an error for standard error, if a configuration that is wrong is what caused it.
pub(crate) fn error(error: &anyhow::Error) -> Option<String> {
    let diagnostics = error.chain().find_map(diagnostics_of)?;
    let lines: Vec<_> = diagnostics.iter().map(ToString::to_string).collect();
    let drawn = drawn(diagnostics, paint(&io::stderr()));
    Some(describe(error).replace(&lines.join("\n"), &drawn))
}

fn diagnostics_of<'e>(cause: &'e (dyn std::error::Error + 'static)) -> Option<&'e [Diagnostic]> {
    let wrong = cause.downcast_ref().map(ConfigError::diagnostics);
    let refused = || match cause.downcast_ref()? {
        ControlError::Refused(refusal) => Some(&refusal.diagnostics[..]),
        _ => None,
    };
    wrong.or_else(refused).filter(|list| !list.is_empty())
}
