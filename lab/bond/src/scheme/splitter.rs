//! The splitter's daemon as it is configured at both borders.

use std::{fmt::Write as _, io::Write as _, path::Path};

use anyhow::{Context as _, Result};
use flow_testbed::{
    scheme::{METRICS, refusal},
    topology::{GENERATOR, LAN},
};

use tempfile::NamedTempFile;

use crate::{
    cell::Case,
    rig::{QUEUE_MS, device, tunnel_address},
};

/// Packets of a flow that are still short, as in the demonstration.
const THRESHOLD: u32 = 45;
/// What both borders' daemons share, for probes of the tunnels.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";

/// A way in which the splitter chooses tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Priority for short flows on all tunnels, and long flows placed by load.
    Share,
    /// The same, with long flows balanced by flowlets.
    Letflow,
    /// The same, by predicted arrival.
    Tr,
    /// The same, by predicted arrival as the paper has it.
    TrPaper,
}

impl Policy {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Letflow => "letflow",
            Self::Tr => "tr",
            Self::TrPaper => "tr_paper",
        }
    }

    /// The value of `balance`; nothing for what a splitter does without one.
    fn balance(self) -> Option<&'static str> {
        match self {
            Self::Share => None,
            Self::Letflow => Some("letflow"),
            Self::Tr => Some("tr"),
            Self::TrPaper => Some("tr-paper"),
        }
    }

    /// What the program says against the configuration, if it refuses it.
    pub(crate) fn refused(self, case: Case, splitter: &Path) -> Result<Option<String>> {
        let key = key_file()?;
        let refusal = refusal(splitter, |directory| {
            self.configuration(case, 0, directory, key.path())
        });
        Ok(refusal?)
    }

    /// The configuration at a border (0 or 1), with the daemon's files in `directory`.
    pub(super) fn configuration(
        self,
        case: Case,
        border: usize,
        directory: &Path,
        key: &Path,
    ) -> String {
        let mut text = String::new();
        let quoted = |path: &Path| toml::Value::from(path.display().to_string());
        let path = |name: &str| quoted(&directory.join(name));
        let metrics = format!("{}:{}", METRICS.0, METRICS.1);
        let _ = writeln!(text, "name = \"bond\"");
        let _ = writeln!(text, "lan = [\"{LAN}\", \"{GENERATOR}\"]");
        let _ = writeln!(
            text,
            "runtime_dir = {}\nbpffs = {}",
            path("run"),
            path("bpf")
        );
        let _ = writeln!(text, "policy = \"share\"");
        if let Some(balance) = self.balance() {
            let _ = writeln!(text, "balance = \"{balance}\"");
        }
        for (index, tunnel) in case.tunnels.iter().enumerate() {
            let table = match (self.balance(), case.tunnels.len(), index) {
                (None, 2, 0) => "[short]",
                (None, 2, _) => "[long]",
                _ => "[[tunnels]]",
            };
            let (device, rate) = (device(index), tunnel.rate_mbit);
            let far = tunnel_address(1 - border, index);
            let _ = writeln!(text, "{table}\ndevice = \"{device}\"\nrate_mbit = {rate}");
            let _ = writeln!(text, "gateway = \"{far}\"\npeer = \"{far}\"");
            if self.balance().is_some() {
                // For those that choose by chance.
                let _ = writeln!(text, "weight = {rate}");
            }
        }
        if self.balance().is_some() {
            // Tunnels are told apart by the kernel's mark alone.
            let _ = writeln!(text, "[short]\n[long]\n[steering]\nmode = \"mark\"");
        } else {
            let _ = writeln!(text, "[attach]\nmode = \"native\"");
        }
        let _ = writeln!(text, "[flows]\nthreshold = {THRESHOLD}");
        let _ = writeln!(text, "[share]\nshape_percent = 100\nqueue_ms = {QUEUE_MS}");
        let _ = writeln!(text, "[health]\nkey_file = {}", quoted(key));
        let _ = writeln!(text, "[metrics]\naddress = \"{metrics}\"");
        text
    }
}

/// A file with what both daemons share, for probes of the tunnels; nobody else may read it.
pub(super) fn key_file() -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new().context("cannot make a temporary file")?;
    let written = file.write_all(KEY.as_bytes());
    written.with_context(|| format!("cannot write {}", file.path().display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell;

    fn configuration(policy: Policy, case: &str, border: usize) -> toml::Table {
        let case = cell::chosen(Some(case), false)[0].case;
        let text = policy.configuration(case, border, Path::new("/x"), Path::new("/key"));
        text.parse().expect("TOML")
    }

    #[test]
    fn sharing_has_a_tunnel_for_each_class_as_long_as_there_are_two() {
        let table = configuration(Policy::Share, "30+8-", 1);
        assert_eq!(table["short"]["rate_mbit"].as_integer(), Some(30));
        assert_eq!(table["long"]["device"].as_str(), Some("tun1"));
        assert_eq!(table["long"]["peer"].as_str(), Some("10.9.1.1"));
        assert!(!table.contains_key("balance"));
        assert_eq!(table["bpffs"].as_str(), Some("/x/bpf"));
    }

    #[test]
    fn balancer_chooses_from_one_list_of_tunnels() {
        let table = configuration(Policy::TrPaper, "50+50+20-", 0);
        assert_eq!(table["balance"].as_str(), Some("tr-paper"));
        let tunnels = table["tunnels"].as_array().expect("a list");
        assert_eq!(tunnels.len(), 3);
        assert_eq!(tunnels[2]["rate_mbit"].as_integer(), Some(20));
        assert_eq!(tunnels[0]["weight"].as_integer(), Some(50));
        assert_eq!(tunnels[2]["gateway"].as_str(), Some("10.9.2.2"));
        assert_eq!(table["steering"]["mode"].as_str(), Some("mark"));
    }
}
