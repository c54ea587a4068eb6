//! `balance`: how packets choose among the tunnels of a site, which are one list then.
//!
//! One rule holds for what the sections mean together: a class chooses by its own key, else by the one above all
//! sections, and what is not split goes with the short class. A class whose word is "placement", or that has none, keeps to
//! the tunnels of its section. Where there is no word for either, the kernel's routes alone say which of these a flow takes.

use splitter_netlink::Family;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_policy::paths::BalancerNumber;

use super::tunnels::{MAX_TUNNELS, TunnelList, all_places, tunnel};
use super::{Gateways, SteeringMode, Tunnel};
use crate::Config;
use crate::config::Given;
use crate::declaration::{Declaration, key};
use crate::key::Change::Reload;
use crate::kind::{Kind, enumeration};
use crate::source::{Section, Source};

enumeration! {
    /// The way in which packets choose among the tunnels of a site.
    Balance {
        /// By a hash of the flow, weighted, among the tunnels of the flow's class.
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

/// The ways in which the classes choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Balancers {
    /// The way of short flows, and of what is not split.
    pub short: Balance,
    /// The way of long flows.
    pub long: Balance,
}

impl Balancers {
    /// Tells if a class chooses in a way.
    #[must_use]
    pub fn have(self, balance: Balance) -> bool {
        self.short == balance || self.long == balance
    }

    /// Returns the way of a class.
    #[must_use]
    pub fn of(self, class: Class) -> Balance {
        match class {
            Class::Short => self.short,
            Class::Long => self.long,
        }
    }

    /// Tells if packets of a class are in all tunnels of the site by rights: where they choose, and those of long flows
    /// also where short ones do.
    #[must_use]
    pub fn roam(self, class: Class) -> bool {
        [self.short, self.of(class)] != [Balance::Placement; 2]
    }

    /// Tells if packets of a class may be found in any tunnel of the site: where they choose, and those of long flows
    /// always, for a flow that turns long stays where it was until its own tunnel keeps it in order.
    #[must_use]
    pub fn may_be_in_any(self, class: Class) -> bool {
        class == Class::Long || self.roam(class)
    }

    /// Tells if each flow keeps to the tunnels of its class.
    #[must_use]
    pub fn keep_to_classes(self) -> bool {
        [self.short, self.long] == [Balance::Placement; 2]
    }
}

/// In a sentence without its full stop.
impl std::fmt::Display for Balancers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { short, long } = *self;
        if self.keep_to_classes() {
            return f.write_str(
                "each flow keeps to the tunnels of its class, to one of them by its hash",
            );
        }
        if short == long {
            return write!(f, "all packets choose by {short}");
        }
        let does = |it| match it {
            Balance::Placement => "keep to the tunnels of their class".to_owned(),
            chosen => format!("choose by {chosen}"),
        };
        write!(
            f,
            "short flows and what is not split {}, long flows {}",
            does(short),
            does(long)
        )
    }
}

impl Config {
    /// Returns how packets choose among the tunnels; `None` where nothing says so, and the kernel's routes give each flow one
    /// of its class.
    #[must_use]
    pub fn balancers(&self) -> Option<Balancers> {
        let words = TunnelRole::ALL.map(|class| self.balance_of(class));
        words.iter().any(Option::is_some).then(|| {
            let [short, long] = words.map(|it| it.unwrap_or(Balance::Placement));
            Balancers { short, long }
        })
    }

    /// Returns the steering mode whose kind of program splits. The number of a tunnel stands in the kernel's mark, which
    /// XDP cannot set: where packets choose, traffic control marks by the DSCP, too.
    #[must_use]
    pub fn program_mode(&self) -> SteeringMode {
        match self.steering.mode {
            SteeringMode::Dscp if self.balancers().is_some() => SteeringMode::Mark,
            mode => mode,
        }
    }

    /// The word that goes for a class, wherever it stands.
    fn balance_of(&self, class: TunnelRole) -> Option<Balance> {
        self.tunnels_of(class).balance.or(self.balance)
    }

    /// The bits of the kernel's mark that tell tunnels apart, next above those of the classes; none
    /// where packets do not choose.
    #[must_use]
    pub fn tunnel_mask(&self) -> u32 {
        if self.balancers().is_none() {
            return 0;
        }
        let above = self.steering.mark_bits.mask().trailing_zeros() + CLASS_BITS;
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
             only `table` and `balance`. Only with `balance`.",
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
    let hears = |it: Balancers| it.have(Balance::Tr);
    if config.fabric.is_some() && !config.balancers().is_some_and(hears) {
        top.contradiction(
            "fabric",
            "only balance = \"tr\" looks at what spines report".to_owned(),
            "set balance = \"tr\", or leave the key out",
        );
    }
    for_somebody(source, config);
    let Some(balancers) = config.balancers() else {
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
    classes_agree(source, config, balancers);
    let place = place_of_word(source, config, |it| {
        it != Balance::Placement || balancers.keep_to_classes()
    });
    let refuse = |problem: &str, remedy| place.contradiction("balance", problem.to_owned(), remedy);
    marks_fit(source, config);
    if config.steering.mode == SteeringMode::Redirect {
        can_be_redirected(source, config);
    }
    if config.is_shared() && balancers.keep_to_classes() {
        refuse(
            "each flow keeps to the tunnels of its class, so that policy = \"share\" has nothing to share",
            "leave it out, have a class choose among all tunnels, such as by \"ecmp\", or set policy = \"dedicated\"",
        );
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
        let predicting = [balancers.short, balancers.long];
        let mut predicting = predicting.into_iter().filter(|it| it.needs_rates());
        if let Some(balance) = predicting.next()
            && tunnel.rate_mbit.is_none()
            && !config.is_shared()
        {
            place.contradiction(
                "rate_mbit",
                format!("balance = \"{balance}\" predicts when packets arrive, for which the rate must be known"),
                "give the rate in Mbit/s, or set balance = \"drb\"",
            );
        }
    }
}

/// The word above all sections goes for a class that has none of its own.
fn for_somebody(source: &Source<'_>, config: &Config) {
    let has_own = |class| config.tunnels_of(class).balance.is_some();
    if config.balance.is_some() && TunnelRole::ALL.into_iter().all(has_own) {
        source.top().contradiction(
            "balance",
            "[short] and [long] have a `balance` each, so that this one goes for nobody".to_owned(),
            "leave it out, or one of theirs",
        );
    }
}

/// What one class does leaves the other one what it needs.
fn classes_agree(source: &Source<'_>, config: &Config, balancers: Balancers) {
    let Balancers { short, long } = balancers;
    if balancers.have(Balance::TrPaper) && short != long {
        place_of_word(source, config, |it| it == Balance::TrPaper).contradiction(
            "balance",
            "\"tr-paper\" tells short and long flows apart by itself, and has to see all packets of both"
                .to_owned(),
            "set balance = \"tr-paper\" above all sections and leave it out in them, or set \"tr\" here",
        );
    }
    if balancers.have(Balance::Placement) && !config.listed.is_empty() {
        source.top().contradiction(
            "tunnels",
            "the list does not say which tunnels a class has that keeps to its own (balance = \"placement\")"
                .to_owned(),
            "describe the tunnels under [short] and [long], or have both classes choose",
        );
    }
}

/// Where a word stands that is meant: above all sections, or in the first class that has one.
fn place_of_word<'s, 't>(
    source: &'s Source<'t>,
    config: &Config,
    is_meant: impl Fn(Balance) -> bool,
) -> Section<'s, 't> {
    let is_meant = |it: Option<Balance>| it.is_some_and(&is_meant);
    let mut classes = TunnelRole::ALL.into_iter();
    match classes.find(|class| is_meant(config.tunnels_of(*class).balance)) {
        Some(class) if !is_meant(config.balance) => source.section(class.name()),
        _ => source.top(),
    }
}

/// Where packets are redirected, the agent keeps the next hop of each tunnel, and nobody hears of a fabric.
fn can_be_redirected(source: &Source<'_>, config: &Config) {
    if config.fabric.is_some() {
        source.top().contradiction(
            "fabric",
            "packets that are redirected choose without what spines report".to_owned(),
            "leave the key out, or set steering.mode to \"mark\" or \"dscp\"",
        );
    }
    for (place, (_, tunnel)) in all_places(source).iter().zip(config.tunnels()) {
        let lacks = |family| tunnel.gateway.of(family).is_none() && config.names_next_hops(family);
        let has_none = Gateways::default() == tunnel.gateway;
        if has_none || lacks(Family::V4) || lacks(Family::V6) {
            place.contradiction(
                "gateway",
                "packets that choose a tunnel are redirected to its next hop, in each address family in which one is named"
                    .to_owned(),
                "name the tunnel's next hops, such as gateway = [\"192.0.2.1\", \"2001:db8::1\"], or set steering.mode to \"mark\" or \"dscp\"",
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
