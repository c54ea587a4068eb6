//! The marks of a site's tunnels, and where each leads.

use splitter_config::{Config, Dscp, SteeringMode};
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::Placement;
use splitter_steering::routes::{tunnels_of, tunnels_open_to};

/// A mark of ours, and where it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its number, wherever it is written.
    pub(crate) number: u8,
    /// The class that it is queued as.
    pub(crate) class: Class,
    /// The devices of the tunnels that carry it now, or that probes with it may choose.
    pub(crate) devices: Vec<String>,
    /// What each of them weighs where the kernel spreads flows; nothing where packets choose.
    pub(crate) weights: Vec<u8>,
}

/// The marks in use towards a site: two, or four where the tunnels are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marks(pub(crate) Vec<Mark>);

impl Marks {
    /// Those of a site; `site` is what the configuration would be for it alone.
    pub(crate) fn of(site: &Config, placement: &Placement) -> Self {
        let marks = &site.marks;
        // Probes open connections: where packets are redirected, these go by the stack, and choose nothing.
        let do_choose = site.balancers().is_some() && site.steering.mode != SteeringMode::Redirect;
        let mark = |dscp: Dscp, class: Class, tunnel: TunnelRole| {
            let own = tunnel.own_class();
            let tunnels = match do_choose {
                true => tunnels_open_to(site, placement, own),
                false => tunnels_of(site, placement, placement.of(own)),
            };
            // Where packets choose, more flows need not take more tunnels.
            let spread = tunnels.iter().filter(|_| !do_choose);
            Mark {
                number: dscp.get(),
                class,
                devices: tunnels.iter().map(|it| it.device.to_string()).collect(),
                weights: spread.map(|it| it.weight.get()).collect(),
            }
        };
        let mut all = vec![
            mark(marks.short, Class::Short, TunnelRole::Short),
            mark(marks.long, Class::Long, TunnelRole::Long),
        ];
        // Where packets choose no flow is placed by load.
        if site.is_shared() && site.balancers().is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(top: &str, short: &str, long: &str, placement: &Placement) -> Vec<Vec<String>> {
        devices_by("mark", top, [short, long], placement)
    }

    fn devices_by(
        mode: &str,
        top: &str,
        [short, long]: [&str; 2],
        placement: &Placement,
    ) -> Vec<Vec<String>> {
        let text = format!(
            "lan = 'l'\n{top}\n[short]\ndevice = 'a'\nrate_mbit = 9\ngateway = '192.0.2.1'\n{short}\n[long]\ndevice = 'b'\nrate_mbit = 9\ngateway = '198.51.100.1'\n{long}\n[steering]\nmode = '{mode}'\n"
        );
        let marks = Marks::of(&Config::parse(&text, "t").unwrap(), placement);
        marks.0.into_iter().map(|it| it.devices).collect()
    }

    #[test]
    fn mark_of_a_class_that_chooses_leads_to_each_used_tunnel() {
        let tr = "balance = 'tr'";
        let primary = |top, short, long| devices(top, short, long, &Placement::PRIMARY);
        assert_eq!(primary("", "", ""), [["a"], ["b"]]);
        assert_eq!(primary(tr, "", ""), [["a", "b"], ["a", "b"]]);
        assert_eq!(primary("policy = 'share'\nbalance = 'tr'", "", "").len(), 2);
        assert_eq!(primary("", "", tr), [vec!["a"], vec!["a", "b"]]);
        // A flow that turns long stays where it was until that is in order.
        assert_eq!(primary("", tr, ""), [["a", "b"], ["a", "b"]]);
        let one_left = Placement {
            long: splitter_steering::Egress::Short,
            disabled: vec!["b".to_owned().try_into().unwrap()],
            ..Placement::PRIMARY
        };
        assert_eq!(devices(tr, "", "", &one_left), [["a"], ["a"]]);
    }

    #[test]
    fn mark_of_a_class_that_is_redirected_leads_to_its_own_tunnels_as_probes_choose_nothing() {
        let by = |tr| devices_by("redirect", tr, ["", ""], &Placement::PRIMARY);
        assert_eq!(by("balance = 'tr'"), [["a"], ["b"]]);
        assert_eq!(by(""), [["a"], ["b"]]);
    }

    #[test]
    fn redirected_probes_are_spread_over_the_tunnels_of_their_class_by_the_kernel() {
        let third =
            "[[long.tunnels]]\ndevice = 'c'\ngateway = '203.0.113.1'\nrate_mbit = 9\nweight = 3\n";
        for mode in ["redirect", "mark"] {
            let text = format!(
                "lan = 'l'\nbalance = 'drb'\n[short]\ndevice = 'a'\ngateway = '192.0.2.1'\n\
                 [[long.tunnels]]\ndevice = 'b'\ngateway = '198.51.100.1'\n{third}[steering]\nmode = '{mode}'\n"
            );
            let config = Config::parse(&text, "t").expect("it is right");
            let weights = Marks::of(&config, &Placement::PRIMARY).weights(Class::Long);
            match mode {
                "redirect" => assert_eq!(weights, [1, 3]),
                _ => assert_eq!(weights, [0; 0]),
            }
        }
    }
}
