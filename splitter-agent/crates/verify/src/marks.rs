//! The marks of a site's tunnels, and where each leads.

use splitter_config::{Config, Dscp};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::Placement;
use splitter_steering::routes::tunnels_of;

/// A mark of ours, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its number, wherever it is written.
    pub(crate) number: u8,
    /// The class that it is queued as.
    pub(crate) class: Class,
    /// The devices of the tunnels that carry it now.
    pub(crate) devices: Vec<String>,
    /// What each of them weighs where the kernel spreads flows.
    pub(crate) weights: Vec<u8>,
}

/// The marks in use towards a site: two, or four where the tunnels are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) Vec<Mark>);

impl Marks {
    /// Those of a site; `site` is what the configuration would be for it alone.
    pub(crate) fn of(site: &Config, placement: &Placement) -> Self {
        let marks = &site.marks;
        let mark = |dscp: Dscp, class: Class, tunnel: TunnelRole| {
            let tunnels = tunnels_of(site, placement, placement.of(tunnel.own_class()));
            Mark {
                number: dscp.get(),
                class,
                devices: tunnels.iter().map(|it| it.device.to_string()).collect(),
                weights: tunnels.iter().map(|it| it.weight.get()).collect(),
            }
        };
        let mut all = vec![
            mark(marks.short, Class::Short, TunnelRole::Short),
            mark(marks.long, Class::Long, TunnelRole::Long),
        ];
        if site.is_shared() {
            all.push(mark(marks.short_on_long, Class::Short, TunnelRole::Long));
            all.push(mark(marks.long_on_short, Class::Long, TunnelRole::Short));
        }
        Self(all)
    }

    /// Those of several sites, each mark with the devices of all of them.
    pub(crate) fn of_all(sites: impl IntoIterator<Item = Self>) -> Self {
        let mut sites = sites.into_iter();
        let mut all = sites.next().unwrap_or(Self(Vec::new()));
        for Self(marks) in sites {
            for (mark, more) in all.0.iter_mut().zip(marks) {
                mark.devices.extend(more.devices);
                mark.weights.extend(more.weights);
            }
        }
        all
    }

    /// The devices that packets of a class are to leave by.
    pub(crate) fn intended(&self, class: Class) -> Vec<String> {
        let of_class = self.0.iter().filter(|it| it.class == class);
        let mut devices: Vec<_> = of_class.flat_map(|it| it.devices.clone()).collect();
        devices.sort();
        devices.dedup();
        devices
    }

    /// What the tunnels weigh among which the kernel spreads a class' flows.
    pub(crate) fn weights(&self, class: Class) -> Vec<u8> {
        let of_class = self.0.iter().filter(|it| it.class == class);
        of_class.flat_map(|it| it.weights.iter().copied()).collect()
    }

    /// The mark with that number, if it is one of ours.
    pub(crate) fn numbered(&self, number: Option<u8>) -> Option<&Mark> {
        let number = number?;
        self.0.iter().find(|it| it.number == number)
    }

    /// The mark that packets of a class have in its own tunnel.
    pub(crate) fn own(&self, class: Class) -> u8 {
        let mut marks = self.0.iter();
        marks.find(|it| it.class == class).map_or(0, |it| it.number)
    }

    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.0.iter().map(|it| it.number).collect()
    }
}
