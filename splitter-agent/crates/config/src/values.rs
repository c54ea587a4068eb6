//! Values that cannot be wrong once they exist.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use splitter_netlink::InvalidInterfaceName;
use splitter_policy::config::PolicyConfig;
use splitter_policy::dscp as policy;
use splitter_policy::flow::TunnelRole;

/// Why a value is refused and what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}; {remedy}")]
pub struct InvalidValue {
    /// What is wrong with it.
    pub problem: String,
    /// What to do instead.
    pub remedy: String,
}

impl InvalidValue {
    /// An error from what is wrong and what to do instead.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

impl From<InvalidInterfaceName> for InvalidValue {
    fn from(error: InvalidInterfaceName) -> Self {
        Self::new(error.problem, InvalidInterfaceName::REMEDY)
    }
}

/// How much a flow may send as a short one, in the unit of the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// So many units.
    Fixed(NonZeroU32),
    /// What is recommended, within bounds.
    Auto,
}

impl Threshold {
    /// The number that was given, if one was.
    #[must_use]
    pub fn fixed(self) -> Option<u32> {
        match self {
            Self::Fixed(number) => Some(number.get()),
            Self::Auto => None,
        }
    }
}

impl Serialize for Threshold {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(number) => number.serialize(serializer),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

impl From<NonZeroU32> for Threshold {
    fn from(number: NonZeroU32) -> Self {
        Self::Fixed(number)
    }
}

/// The size of a flow table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableSize {
    /// So many flows.
    Fixed(NonZeroU32),
    /// By the memory of the machine, and by need.
    Auto,
}

impl From<NonZeroU32> for TableSize {
    fn from(flows: NonZeroU32) -> Self {
        Self::Fixed(flows)
    }
}

impl Serialize for TableSize {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(flows) => flows.serialize(serializer),
            Self::Auto => serializer.serialize_str("auto"),
        }
    }
}

/// The NUMA node whose memory holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaNode {
    /// The node of this number.
    Node(u32),
    /// Any, as the kernel chooses.
    Any,
}

impl NumaNode {
    /// The number that was given, if one was.
    #[must_use]
    pub fn number(self) -> Option<u32> {
        match self {
            Self::Node(number) => Some(number),
            Self::Any => None,
        }
    }
}

impl From<u32> for NumaNode {
    fn from(number: u32) -> Self {
        Self::Node(number)
    }
}

impl Serialize for NumaNode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Node(number) => number.serialize(serializer),
            Self::Any => serializer.serialize_str("any"),
        }
    }
}

/// Differentiated Services Code Point, 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Dscp(policy::Dscp);

impl Dscp {
    /// The default mark of short flows. Distinct from [`Dscp::LONG`] in the three bits that
    /// rules of kernels before Linux 6.13 can see.
    pub const SHORT: Self = Self(PolicyConfig::DEFAULT_SHORT_MARK);
    /// The default mark of long flows.
    pub const LONG: Self = Self(PolicyConfig::DEFAULT_LONG_MARK);

    /// The default mark of short flows in the long tunnel, where that is shared.
    pub const SHORT_ON_LONG: Self = Self(PolicyConfig::DEFAULT_SHORT_ON_LONG_MARK);
    /// The default mark of long flows in the short tunnel, where that is shared.
    pub const LONG_ON_SHORT: Self = Self(PolicyConfig::DEFAULT_LONG_ON_SHORT_MARK);

    /// The code point as a number.
    #[must_use]
    pub fn get(self) -> u8 {
        self.0.value()
    }

    /// The code point as the policy knows it.
    #[must_use]
    pub fn policy(self) -> policy::Dscp {
        self.0
    }

    /// The Type of Service byte that carries it, ECN bits zero.
    #[must_use]
    pub fn tos(self) -> u8 {
        self.get() << 2
    }

    /// Returns what a `tos` rule sees of it: the kernel masks both rule and packet with 0x1c.
    #[must_use]
    pub fn legacy_tos(self) -> u8 {
        self.tos() & 0x1c
    }
}

impl TryFrom<u8> for Dscp {
    type Error = InvalidValue;
    fn try_from(value: u8) -> Result<Self, InvalidValue> {
        policy::Dscp::new(value)
            .map(Self)
            .ok_or_else(|| InvalidValue::new("a DSCP has six bits", "give 0 to 63"))
    }
}

impl From<Dscp> for u8 {
    fn from(value: Dscp) -> Self {
        value.get()
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// A number of a routing table that the agent may call its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct TableId(u32);

impl TableId {
    /// The default table of the short tunnel.
    pub const SHORT: Self = Self(10401);
    /// The default table of the long tunnel.
    pub const LONG: Self = Self(10402);

    /// The default table of the first of all tunnels, where packets choose among them.
    pub const OF_TUNNELS: Self = Self(10411);

    /// Returns the table so many numbers after this one, if it is one that the agent may call its own.
    pub(crate) fn after(self, count: u32) -> Option<Self> {
        self.0.checked_add(count)?.try_into().ok()
    }

    /// Returns the default table of a class.
    pub(crate) const fn of(class: TunnelRole) -> Self {
        match class {
            TunnelRole::Short => Self::SHORT,
            TunnelRole::Long => Self::LONG,
        }
    }

    /// Returns the table's number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for TableId {
    type Error = InvalidValue;
    fn try_from(value: u32) -> Result<Self, InvalidValue> {
        let owner = match value {
            0 => "means \"unspecified\" to the kernel",
            253 => "is the kernel's table \"default\"",
            254 => "is the kernel's table \"main\"",
            255 => "is the kernel's table \"local\"",
            _ => return Ok(Self(value)),
        };
        Err(InvalidValue::new(
            format!("table {value} {owner}"),
            "give the number of a table that nothing else uses, such as 10401",
        ))
    }
}

impl From<TableId> for u32 {
    fn from(value: TableId) -> Self {
        value.0
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first of the consecutive rule priorities that an instance uses: three for each length that the
/// prefixes of its destinations have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct RulePriority(u32);

impl RulePriority {
    /// Priority of rules unless a file says otherwise. It and all that any number of prefix lengths
    /// takes are free beside the programs that `splitter doctor` knows: after the kernel's rule for
    /// VRFs (1000) and those of FRR's PBR, before the marks of mwan3 (2001) and Tailscale (5210).
    pub const DEFAULT: Self = Self(1600);
    /// The last that leaves three rules in front of the rule for the main table.
    pub const MAX: u32 = Self::MAIN - Self::GROUP;
    /// The priority of the kernel's own rule for the main table.
    pub(crate) const MAIN: u32 = 32766;
    /// Rules that belong together: for specific routes, for the long tunnel, for the short one.
    pub(crate) const GROUP: u32 = 3;

    /// The first priority of a later group of three.
    #[must_use]
    pub fn group(self, index: u32) -> Self {
        Self(self.0 + index * Self::GROUP)
    }

    /// Priority of the rule that lets specific routes of the main table win.
    #[must_use]
    pub fn specific(self) -> u32 {
        self.0
    }

    /// Priority of the rule that picks the long tunnel.
    #[must_use]
    pub fn long(self) -> u32 {
        self.0 + 1
    }

    /// Priority of the rule that sends the rest to the short tunnel.
    #[must_use]
    pub fn short(self) -> u32 {
        self.0 + 2
    }
}

impl TryFrom<u32> for RulePriority {
    type Error = InvalidValue;
    fn try_from(value: u32) -> Result<Self, InvalidValue> {
        if !(1..=Self::MAX).contains(&value) {
            return Err(InvalidValue::new(
                "the rules must come after the local table (0) and before the main table (32766)",
                format!(
                    "give 1 to {} (the default is {})",
                    Self::MAX,
                    Self::DEFAULT.0
                ),
            ));
        }
        Ok(Self(value))
    }
}

impl From<RulePriority> for u32 {
    fn from(value: RulePriority) -> Self {
        value.0
    }
}

/// Name of a remote site: a label of metrics, and a word in messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SiteName(String);

impl SiteName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of the site that a file describes without a list of sites.
impl Default for SiteName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl TryFrom<String> for SiteName {
    type Error = InvalidValue;
    fn try_from(value: String) -> Result<Self, InvalidValue> {
        let fits = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
        if value.is_empty() || value.len() > 32 || !value.chars().all(fits) {
            return Err(InvalidValue::new(
                "the name becomes a label of metrics",
                "give 1 to 32 letters, digits, '-', '_' or '.'",
            ));
        }
        Ok(Self(value))
    }
}

impl From<SiteName> for String {
    fn from(value: SiteName) -> Self {
        value.0
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// URL of an OpenTelemetry collector that speaks HTTP without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CollectorUrl(String);

impl CollectorUrl {
    /// The URL as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CollectorUrl {
    type Error = InvalidValue;
    fn try_from(value: String) -> Result<Self, InvalidValue> {
        let remedy = "give one such as \"http://127.0.0.1:4318\"";
        if value.starts_with("https://") {
            return Err(InvalidValue::new(
                "there is no TLS here",
                "give a collector on this machine, which passes it on with TLS",
            ));
        }
        let host = value.strip_prefix("http://").unwrap_or_default();
        if host.is_empty() || host.starts_with('/') || value.contains(char::is_whitespace) {
            return Err(InvalidValue::new(
                "this is not the URL of a collector",
                remedy,
            ));
        }
        if host.contains('@') {
            return Err(InvalidValue::new(
                "there is a user or password in it, which everybody sees who may read this file",
                "put `authorization=...` into the variable OTEL_EXPORTER_OTLP_HEADERS",
            ));
        }
        Ok(Self(value))
    }
}

impl From<CollectorUrl> for String {
    fn from(value: CollectorUrl) -> Self {
        value.0
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name of an instance: a part of paths, so letters, digits, `-` and `_` only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceName(String);

impl InstanceName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for InstanceName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl TryFrom<String> for InstanceName {
    type Error = InvalidValue;
    fn try_from(value: String) -> Result<Self, InvalidValue> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if value.is_empty() || value.len() > 64 || !value.chars().all(fits) {
            return Err(InvalidValue::new(
                "the name becomes part of paths",
                "give 1 to 64 letters, digits, '-' or '_' (the default is \"default\")",
            ));
        }
        Ok(Self(value))
    }
}

impl From<InstanceName> for String {
    fn from(value: InstanceName) -> Self {
        value.0
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
