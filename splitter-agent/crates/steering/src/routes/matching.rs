//! Which way of matching a mark the running kernel has.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use splitter_config::{Config, DscpMatch};
use splitter_netlink::{Family, Netlink, NetlinkError, address_family};

use super::message::FRA_DSCP;
use super::plan::PlanError;
use super::wanted::Matching;

/// Decides how rules match the long mark.
///
/// # Errors
/// When the kernel lacks what the configuration insists on, or cannot tell the marks apart.
pub(super) async fn decide(netlink: &Netlink, config: &Config) -> Result<Matching, PlanError> {
    let marks = &config.marks;
    if let Some(bits) = config.mark_bits() {
        return Ok(Matching::Beside(bits));
    }
    match marks.matching {
        DscpMatch::Tos => Ok(Matching::Legacy),
        DscpMatch::Dscp if supports_exact_dscp(netlink).await? => Ok(Matching::Exact),
        DscpMatch::Dscp => Err(PlanError::NoExactMatch),
        DscpMatch::Auto if supports_exact_dscp(netlink).await? => Ok(Matching::Exact),
        DscpMatch::Auto => {
            marks
                .check_legacy(config.policy)
                .map_err(PlanError::MarksCollide)?;
            Ok(Matching::Legacy)
        }
    }
}

/// Finds out whether this kernel's rules match a DSCP exactly (`FRA_DSCP`, Linux 6.13 and backports).
///
/// Nothing is changed: the kernel is asked for a rule that it must refuse, a `goto` without a
/// target whose DSCP is out of range. One that knows the attribute refuses the range; an older
/// one ignores the attribute and refuses the rest. Without the right to ask, the version decides.
///
/// # Errors
/// When the kernel does not answer.
pub async fn supports_exact_dscp(netlink: &Netlink) -> Result<bool, NetlinkError> {
    let mut message = RuleMessage::default();
    message.header.family = address_family(Family::V4);
    message.header.action = RuleAction::Goto;
    message
        .attributes
        .push(RuleAttribute::Other(DefaultNla::new(
            FRA_DSCP,
            vec![u8::MAX],
        )));
    let request = "ask for rules that match a DSCP exactly";
    let message = RouteNetlinkMessage::NewRule(message);
    match netlink
        .change(request, message, NLM_F_CREATE | NLM_F_EXCL)
        .await
    {
        Err(error) if error.is_permission_denied() => Ok(version_has_exact_dscp()),
        Err(error) => match error.os_error() {
            Some(libc::ERANGE) => Ok(true),
            Some(_) => Ok(false),
            None => Err(error),
        },
        Ok(()) => Ok(false),
    }
}

fn version_has_exact_dscp() -> bool {
    let Ok(system) = nix::sys::utsname::uname() else {
        return false;
    };
    let release = system.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 13),
        _ => false,
    }
}
