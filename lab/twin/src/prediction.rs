//! What `netsim run --trace` says of a recording.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::{network, policy::Policy};

/// Figures that are predicted of a policy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Predicted {
    scheme: String,
    pub(crate) short: Completions,
    pub(crate) long: Completions,
    /// Segments sent again, and retransmission timeouts.
    #[serde(rename = "retransmitted")]
    pub(crate) retransmitted_segments: u64,
    pub(crate) timeouts: u64,
}

/// Completion times of a class of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Completions {
    pub(crate) flows: u64,
    pub(crate) mean_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// A recording's flows under all policies, as they are predicted.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Prediction {
    schemes: Vec<Predicted>,
}

impl Prediction {
    /// Runs the simulator on a recording; `seed` is that of its hashes.
    pub(crate) fn of(recording: &Path, seed: u64, netsim: &Path) -> Result<Self> {
        let output = Command::new(netsim)
            .args(["run", "--json", "--trace"])
            .arg(recording)
            .args(arguments(seed))
            .output()
            .with_context(|| format!("cannot run {}", netsim.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "netsim predicts nothing: {said}");
        serde_json::from_slice(&output.stdout).context("cannot understand what netsim said")
    }

    /// What is predicted under the policy of a name.
    pub(crate) fn under(&self, policy: &str) -> Result<&Predicted> {
        let mut schemes = self.schemes.iter();
        let found = schemes.find(|it| it.scheme == policy);
        found.with_context(|| format!("netsim predicted nothing of {policy}"))
    }
}

fn arguments(seed: u64) -> [String; 8] {
    [
        "--uplinks".to_owned(),
        network::uplinks(),
        "--buffer-ms".to_owned(),
        network::queue_ms().to_string(),
        "--schemes".to_owned(),
        Policy::ALL.map(Policy::name).join(","),
        "--seed".to_owned(),
        seed.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_scheme() -> Result<()> {
        let scheme = |name: &str, mean_ms: f64| {
            let class =
                |ms| format!(r#"{{"flows":2,"unfinished":0,"mean_ms":{ms},"p99_ms":null}}"#);
            let (short, long) = (class(mean_ms), class(900.0));
            format!(
                r#"{{"scheme":"{name}","short":{short},"long":{long},"retransmitted":3,"timeouts":1}}"#
            )
        };
        let text = format!(
            r#"{{"schemes":[{},{}]}}"#,
            scheme("ecmp", 8.5),
            scheme("share", 4.0)
        );
        let prediction: Prediction = serde_json::from_str(&text)?;
        assert_eq!(prediction.under("share")?.short.mean_ms, Some(4.0));
        assert_eq!(prediction.under("ecmp")?.retransmitted_segments, 3);
        assert!(prediction.under("dedicated").is_err());
        Ok(())
    }
}
