//! Exit codes.

/// The exit code by which a process reports to its parent how it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Done.
    Ok = 0,
    /// Failed.
    Failed = 1,
    /// The configuration is wrong. (2 is clap's, for the command line.)
    Configuration = 3,
    /// A permission is missing.
    NotPermitted = 4,
    /// Something that is not ours, or another instance, is in the way.
    Conflict = 5,
    /// The command cannot tell what it was asked.
    Unknown = 6,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// Finds the exit code that an error stands for: that of the first cause for which `code_of`
/// knows one, else [`ExitCode::Failed`].
pub fn exit_code(
    error: &anyhow::Error,
    code_of: impl Fn(&(dyn std::error::Error + 'static)) -> Option<ExitCode>,
) -> ExitCode {
    error.chain().find_map(code_of).unwrap_or(ExitCode::Failed)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn first_cause_with_a_code_decides_through_context() {
        let code_of = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<io::Error>().then_some(ExitCode::Conflict)
        };
        let error = anyhow::Error::from(io::Error::other("in use")).context("while starting");
        assert_eq!(exit_code(&error, code_of), ExitCode::Conflict);
        assert_eq!(
            exit_code(&anyhow::anyhow!("else"), code_of),
            ExitCode::Failed
        );
    }
}
