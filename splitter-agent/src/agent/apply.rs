//! A file in the place of the agent's own, for good or until it is taken back.

use std::path::Path;
use std::time::Duration;

use splitter_config::{Config, ConfigFile};
use splitter_control::stats::{ChangeResult, ChangeSource};
use splitter_control::{Changed, Refusal};

use super::Agent;
use super::change::{Next, wrong};

impl Agent {
    /// Refuses a change while another one awaits its confirmation.
    pub(super) fn check_none_waits(&self) -> Result<(), Refusal> {
        self.commit.check_none(self.monitor.uptime())
    }

    /// Returns how long it is until a change that awaits its confirmation has to be taken back.
    #[must_use]
    pub fn until_revert(&self) -> Option<Duration> {
        self.commit.until_revert(self.monitor.uptime())
    }

    /// Puts the text of a file in force; unless it is confirmed `within` a time, for that time. The
    /// agent's file stays as it is, and with it what the next agent goes by: whoever asks replaces it.
    pub(super) async fn apply(
        &mut self,
        source: &Path,
        text: String,
        within_s: Option<u32>,
        dry_run: bool,
    ) -> Result<Changed, Refusal> {
        let before = Next {
            config: self.instance.config().clone(),
            file: self.file.clone(),
            overrides: self.overrides.clone(),
            keys: None,
        };
        let next = self
            .check_none_waits()
            .and_then(|()| self.parsed(source, &text));
        let changed = self.change(ChangeSource::Apply, next, dry_run).await?;
        let Some(within_s) = within_s.filter(|_| !dry_run) else {
            return Ok(changed);
        };
        let now = self.monitor.uptime();
        let within = Duration::from_secs(within_s.into());
        self.commit.begin(source, text, before, now, within);
        tracing::warn!(
            event = "change_awaits_confirmation",
            file = %source.display(),
            within_s,
            "the change is taken back unless it is confirmed"
        );
        Ok(Changed {
            confirm_within_s: Some(within_s),
            ..changed
        })
    }

    /// Keeps what was applied.
    pub(super) fn confirm(&mut self, id: u64) -> Result<(), Refusal> {
        let source = self.commit.confirm(id)?;
        tracing::info!(event = "change_confirmed", file = %source.display(), "the change is confirmed");
        Ok(())
    }

    /// Takes back what was not confirmed in time. What fails is tried again when
    /// [`Self::until_revert`] says so.
    pub async fn revert_unconfirmed(&mut self) {
        // What fails was reported.
        let _ = self.revert().await;
    }

    pub(super) async fn revert(&mut self) -> Result<Changed, Refusal> {
        let before = self.commit.before()?.clone();
        let reverted = self.adopt(before, false).await;
        let result = match &reverted {
            Ok(_) => {
                if let Some(source) = self.commit.reverted() {
                    tracing::warn!(event = "change_reverted", file = %source.display(), "the change was not confirmed and is taken back");
                }
                ChangeResult::Applied
            }
            Err(refusal) => {
                let now = self.monitor.uptime();
                if !self.commit.revert_failed(now, &refusal.message) {
                    return reverted;
                }
                tracing::error!(
                    event = "revert_failed",
                    "the change cannot be taken back; trying again every second: {refusal}"
                );
                ChangeResult::Refused
            }
        };
        self.monitor
            .stats()
            .count_change(ChangeSource::Revert, result);
        reverted
    }

    fn parsed(&self, source: &Path, text: &str) -> Result<Next, Refusal> {
        Next::of_file(ConfigFile {
            path: self.file.path.clone(),
            text: text.to_owned(),
            config: Config::parse(text, &source.display().to_string()).map_err(wrong)?,
        })
    }
}
