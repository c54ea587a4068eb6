//! The report while an agent runs: the loops that write it and the scrapes that read it share it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use splitter_config::SiteName;
use splitter_health::Refusal;
use splitter_netlink::InterfaceName;
use splitter_policy::flow::Class;
use splitter_steering::Egress;
use tokio::sync::Notify;

use super::{ClassReport, Misrouted, Move, Report, TunnelReport, common_egress, unix_ms};
use crate::files::{FileError, write_private};
use crate::state::health_report;

/// How many moves are remembered.
const MOVES: usize = 20;

/// The part of the report that the monitor of one site writes.
#[derive(Debug, Clone, Default)]
pub struct SiteReport {
    /// Its tunnels, those of the short class first.
    pub tunnels: Vec<TunnelReport>,
    /// Both classes, the short one first.
    pub classes: Vec<ClassReport>,
    /// Why a class is not where it should be.
    pub problem: Option<String>,
    /// Why the site is not ready.
    pub unready: Option<String>,
    /// What the site does without.
    pub degraded: Option<String>,
}

/// The report, as the loops that write it and the scrapes that read it share it.
#[derive(Debug, Clone, Default)]
pub struct SharedReport(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    parts: Mutex<Parts>,
    changed: Notify,
}

/// What belongs to a site is kept by site, so that an event there costs the same however many there
/// are.
#[derive(Debug, Default)]
struct Parts {
    sites: Vec<(SiteName, SiteReport)>,
    /// All that belongs to no site.
    common: Report,
}

impl SharedReport {
    /// Returns what the report says now.
    #[must_use]
    pub fn snapshot(&self) -> Report {
        let Parts { sites, common } = &*self.lock();
        let parts = || sites.iter().map(|(_, it)| it);
        let problems: Vec<_> = parts().filter_map(|it| it.problem.as_deref()).collect();
        Report {
            tunnels: parts().flat_map(|it| it.tunnels.clone()).collect(),
            classes: parts().flat_map(|it| it.classes.clone()).collect(),
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
            degraded: Some(in_words(sites, |it| &it.degraded)).filter(|it| !it.is_empty()),
            ..common.clone()
        }
    }

    /// Returns what is known of the tunnel on a device.
    #[must_use]
    pub fn tunnel(&self, device: &InterfaceName) -> Option<TunnelReport> {
        let parts = self.lock();
        let mut tunnels = parts.sites.iter().flat_map(|(_, it)| &it.tunnels);
        tunnels.find(|it| it.device == *device).cloned()
    }

    /// Returns where the packets of a class go, if that is the same for all sites.
    #[must_use]
    pub fn egress(&self, class: Class) -> Option<Egress> {
        let parts = self.lock();
        common_egress(parts.sites.iter().flat_map(|(_, it)| &it.classes), class)
    }

    /// Changes the part of a site; `is_news` tells those who wait for that.
    pub fn change(&self, site: &SiteName, is_news: bool, change: impl FnOnce(&mut SiteReport)) {
        let mut parts = self.lock();
        let part = parts.site(site);
        let before = (part.unready.clone(), part.degraded.clone());
        change(part);
        if is_news || (&part.unready, &part.degraded) != (&before.0, &before.1) {
            self.0.changed.notify_one();
        }
    }

    /// Changes what belongs to no site.
    pub fn change_common(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.lock().common);
    }

    /// Forgets a site that is watched no more.
    pub fn forget(&self, site: &SiteName) {
        self.lock().sites.retain(|(name, _)| name != site);
    }

    /// Waits until there is news of a site.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Says why the sites are not ready, each by its name where it has one; empty where all are.
    #[must_use]
    pub fn unready(&self) -> String {
        in_words(&self.lock().sites, |it| &it.unready)
    }

    /// Says what the sites do without, in the same way; empty where they have all.
    #[must_use]
    pub fn degraded(&self) -> String {
        in_words(&self.lock().sites, |it| &it.degraded)
    }

    /// Says which packets leave by other tunnels than those that they are meant for.
    pub fn set_strays(&self, strays: Vec<Misrouted>) {
        self.lock().common.strays = strays;
    }

    /// Counts a datagram that was refused.
    pub fn refused(&self, refusal: Refusal) {
        self.lock().common.refused[refusal as usize] += 1;
    }

    /// Counts and remembers a move.
    pub fn moved(&self, moved: Move) {
        let mut parts = self.lock();
        let mut classes = parts.site(&moved.site).classes.iter_mut();
        if moved.from != moved.to
            && let Some(class) = classes.find(|it| it.class == moved.class)
        {
            class.tunnel = moved.to;
            class.moves[moved.to as usize] += 1;
        }
        let moves = &mut parts.common.moves;
        if moves.len() == MOVES {
            moves.pop_front();
        }
        moves.push_back(moved);
    }

    /// Writes the report for other processes.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<(), FileError> {
        let report = Report {
            written_unix_ms: unix_ms(),
            ..self.snapshot()
        };
        write_private(&health_report(directory), &report)
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        // A panic elsewhere does not make plain numbers wrong.
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    fn site(&mut self, name: &SiteName) -> &mut SiteReport {
        let known = self.sites.iter().position(|(it, _)| it == name);
        let index = known.unwrap_or_else(|| {
            self.sites.push((name.clone(), SiteReport::default()));
            self.sites.len() - 1
        });
        &mut self.sites[index].1
    }
}

/// What some sites have to say, each by its name where it has one.
fn in_words(
    sites: &[(SiteName, SiteReport)],
    said_by: impl Fn(&SiteReport) -> &Option<String>,
) -> String {
    let said = sites.iter().filter_map(|(name, it)| {
        let words = said_by(it).as_ref()?;
        Some(match *name == SiteName::default() {
            true => words.clone(),
            false => format!("{name}: {words}"),
        })
    });
    said.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_the_file_and_a_damaged_one_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let shared = SharedReport::default();
        let site = SiteName::default();
        shared.change(&site, true, |report| {
            report.classes.push(ClassReport {
                site: site.clone(),
                class: "short".to_owned(),
                tunnel: Egress::Short,
                moves: [0; 3],
                jitter: splitter_policy::histogram::Histogram::EMPTY,
            });
        });
        for turn in 0..30 {
            shared.moved(Move {
                unix_ms: turn,
                site: site.clone(),
                class: "short".to_owned(),
                from: Egress::Short,
                to: Egress::Main,
                left: Vec::new(),
                taken_up: Vec::new(),
                reason: "both are dead".to_owned(),
            });
        }
        shared.refused(Refusal::Forged);
        shared.write(directory.path()).unwrap();
        let read = Report::read(directory.path()).unwrap();
        assert!(read.is_fresh());
        assert_eq!(read.moves.len(), MOVES);
        assert_eq!(read.classes[0].moves, [0, 0, 30]);
        assert_eq!(read.refused, [0, 1, 0, 0, 0, 0, 0]);
        std::fs::write(directory.path().join("health.json"), "{").unwrap();
        assert!(Report::read(directory.path()).is_none());
    }
}
