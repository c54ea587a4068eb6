//! `balance`: how packets choose among the tunnels of a site, which are one list then.

use splitter_policy::flow::TunnelRole;
use splitter_policy::paths::BalancerNumber;

use super::tunnels::{MAX_TUNNELS, TunnelList, all_places, tunnel};
use super::{SteeringMode, Tunnel};
use crate::Config;
use crate::config::Given;
use crate::declaration::{Declaration, key};
use crate::key::Change::Reload;
use crate::kind::{Kind, enumeration};
use crate::source::{Section, Source};

enumeration! {
    /// The way in which packets choose among the tunnels of a site.
    Balance {
        /// By the number of flows on each tunnel, once for each flow.
        Placement = "placement",
        /// By a hash of the flow, weighted.
        Ecmp = "ecmp",
        /// By chance for each packet, weighted.
        Rps = "rps",
        /// By turns for each packet.
        Drb = "drb",
        /// By turns for each cell of 64 KB.
        Presto = "presto",
        /// By chance after each pause of a flow, weighted.
        Letflow = "letflow",
        /// By the earliest arrival that keeps the flow in order.
        Tr = "tr",
        /// By the earliest arrival to the letter of the paper, long flows where the fewest short ones are.
        TrPaper = "tr-paper",
    }
}

impl Balance {
    /// The number of the balancer, as the kernel programs know it.
    #[must_use]
    pub const fn number(self) -> BalancerNumber {
        match self {
            Self::Placement => BalancerNumber::PLACEMENT,
            Self::Ecmp => BalancerNumber::ECMP,
            Self::Rps => BalancerNumber::RPS,
            Self::Drb => BalancerNumber::DRB,
            Self::Presto => BalancerNumber::PRESTO,
            Self::Letflow => BalancerNumber::LETFLOW,
            Self::Tr => BalancerNumber::TR,
            Self::TrPaper => BalancerNumber::TR_PAPER,
        }
    }

    /// Predicts arrivals, for which rates have to be known.
    #[must_use]
    pub const fn needs_rates(self) -> bool {
        matches!(self, Self::Tr | Self::TrPaper)
    }
}

/// The bits above those of the classes that tell tunnels apart: 16 of them, and none.
const TUNNEL_BITS: u32 = 5;
/// The bits of the mark that a class has.
const CLASS_BITS: u32 = 6;

impl Config {
    /// The bits of the kernel's mark that tell tunnels apart, next above those of the classes; none
    /// without `balance`.
    #[must_use]
    pub fn tunnel_mask(&self) -> u32 {
        let (Some(_), Some(bits)) = (self.balance, self.mark_bits()) else {
            return 0;
        };
        let above = bits.mask().trailing_zeros() + CLASS_BITS;
        ((1 << TUNNEL_BITS) - 1u32).checked_shl(above).unwrap_or(0)
    }

    /// Lists the kernel's mark in those bits for each tunnel, in the order of
    /// [`Config::tunnels`].
    #[must_use]
    pub fn tunnel_marks(&self) -> Vec<u32> {
        let mask = self.tunnel_mask();
        if mask == 0 {
            return Vec::new();
        }
        let numbers = (1..).take(self.tunnels().count());
        numbers.map(|it: u32| it << mask.trailing_zeros()).collect()
    }
}

/// Declares the key that lists the tunnels of the only site.
pub(crate) fn listed() -> Declaration<impl Kind<Value = Vec<Tunnel>>, Vec<Tunnel>> {
    key("tunnels", Reload, TunnelList)
        .derived("the tunnels that [short] and [long] describe", |_| {
            Vec::new()
        })
        .trade_off(
            "[Several uplinks as one](../how-to/uplinks-as-one.md); then `[short]` and `[long]` hold \
             only `table`. Only with `balance`.",
        )
}

/// Reads that list: the first is the short class's where only classes are told apart, as in the
/// tables that packets fall back to, and the others the long one's.
pub(crate) fn read_listed(top: &Section<'_, '_>, given: &mut Given) {
    let Some(tables) = top.tables("tunnels", "tunnels") else {
        return;
    };
    if !(2..=MAX_TUNNELS).contains(&tables.len()) {
        top.contradiction(
            "tunnels",
            format!("the list has {} tunnels", tables.len()),
            "name 2 to 16 tunnels, or leave the list out and describe [short] and [long]",
        );
    }
    // All of them first, so that each mistake is noted.
    let tunnels: Vec<_> = tables.iter().map(tunnel).collect();
    let tunnels = tunnels.into_iter().collect::<Option<Vec<_>>>();
    let tunnels = tunnels.filter(|it| it.len() >= 2);
    for (class, section) in [
        (TunnelRole::Short, &mut given.short),
        (TunnelRole::Long, &mut given.long),
    ] {
        match (&tunnels, section.as_mut()) {
            (Some(all), Some(section)) => {
                let (first, others) = all.split_at(1);
                let own = match class {
                    TunnelRole::Short => first,
                    TunnelRole::Long => others,
                };
                section.set_of_sites(own.to_vec());
            }
            _ => *section = None,
        }
    }
    given.listed = tunnels;
}

/// What `balance` needs of other keys, and who needs it.
pub(super) fn choice_is_possible(source: &Source<'_>, config: &Config) {
    let top = source.top();
    if config.fabric.is_some() && config.balance != Some(Balance::Tr) {
        top.contradiction(
            "fabric",
            "only balance = \"tr\" looks at what spines report".to_owned(),
            "set balance = \"tr\", or leave the key out",
        );
    }
    let Some(balance) = config.balance else {
        if !config.listed.is_empty() {
            top.contradiction(
                "tunnels",
                "without `balance` each class has tunnels of its own".to_owned(),
                "set balance, such as balance = \"tr\", or describe [short] and [long]",
            );
        }
        for (place, (_, tunnel)) in all_places(source).iter().zip(config.tunnels()) {
            if tunnel.delay.is_some() {
                place.contradiction(
                    "delay_ms",
                    "nobody looks at it without `balance`".to_owned(),
                    "leave the key out, or set balance = \"tr\"",
                );
            }
        }
        return;
    };
    let refuse = |problem: &str, remedy| top.contradiction("balance", problem.to_owned(), remedy);
    if balance == Balance::Placement {
        refuse(
            "\"placement\" is not built into the kernel program yet, which does not count flows by tunnel",
            "set balance to \"tr\"",
        );
    }
    if config.steering.mode != SteeringMode::Mark {
        refuse(
            "tunnels are told apart by the kernel's mark alone, which steering.mode does not use",
            "set steering.mode = \"mark\"",
        );
    } else {
        marks_fit(source, config);
    }
    if !config.sites.is_empty() {
        refuse(
            "sites are listed, and the kernel program chooses for one site alone yet",
            "leave out `site` and list the tunnels of the only site, or leave out balance",
        );
    }
    let tables = config.tunnel_tables();
    let of_classes = [config.short.table, config.long.table];
    let all = config.tunnels().count();
    if tables.len() < config.tunnel_marks().len() || tables.iter().any(|it| of_classes.contains(it))
    {
        source.section("routes").contradiction(
            "tunnel_tables",
            format!("from there on {all} tables are not free, one for each tunnel"),
            "give the first of so many tables that nothing else uses, such as 10411",
        );
    }
    if all > MAX_TUNNELS {
        refuse(
            &format!("it chooses among at most 16 tunnels, and these are {all}"),
            "leave some of them out",
        );
    }
    for (place, (_, tunnel)) in all_places(source).iter().zip(config.tunnels()) {
        // Sharing says so itself.
        if balance.needs_rates() && tunnel.rate_mbit.is_none() && !config.is_shared() {
            place.contradiction(
                "rate_mbit",
                format!("balance = \"{balance}\" predicts when packets arrive, for which the rate must be known"),
                "give the rate in Mbit/s, or set balance = \"drb\"",
            );
        }
    }
}

/// Class and tunnel have bits of their own in the kernel's mark.
fn marks_fit(source: &Source<'_>, config: &Config) {
    let bits = config.steering.mark_bits.mask();
    let taken = bits.trailing_zeros() + CLASS_BITS + TUNNEL_BITS;
    if bits.count_ones() != CLASS_BITS || taken > u32::BITS {
        source.section("steering").contradiction(
            "mark_mask",
            "with `balance` the mark of a class takes six bits, and the number of a tunnel the five above"
                .to_owned(),
            "give a mask of six bits with five free ones above, such as 0x7e (the default)",
        );
    }
}
