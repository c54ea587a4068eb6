//! BPF programs of others on the devices that the splitter uses.

use splitter_config::Config;
use splitter_datapath::{ForeignProgram, TcSide, foreign_tc_programs};
use splitter_netlink::{Interface, Interfaces};

use super::{Concern, Finding, Unseen, known};
use crate::xdp;

pub(super) fn findings(config: &Config, interfaces: &Interfaces) -> Result<Vec<Finding>, Unseen> {
    let Some(ours) = xdp::ours(config) else {
        return Err(unseen("which of them are the splitter's cannot be told"));
    };
    let mut findings = Vec::new();
    let present = |name| interfaces.named(name).ok();
    for lan in config.lan.iter().filter_map(present) {
        findings.extend(at_tc(lan, TcSide::Ingress, &ours)?);
    }
    for (_, tunnel) in config.tunnels() {
        let Some(device) = present(&tunnel.device) else {
            continue;
        };
        findings.extend(at_tc(device, TcSide::Egress, &ours)?);
        // What others have on the site's devices is looked at where ours goes.
        findings.extend(in_front(device, &ours));
    }
    Ok(findings)
}

fn at_tc(device: &Interface, side: TcSide, ours: &[u32]) -> Result<Vec<Finding>, Unseen> {
    let found = foreign_tc_programs(device.name.as_str(), device.index, side, ours)
        .map_err(|error| unseen(&error.to_string()))?;
    let finding = |program: splitter_datapath::ForeignTcProgram| {
        let seen = format!("{program}, at TC {} of {}", side.as_str(), device.name);
        Finding {
            name: known::of_program(program.name.as_deref()),
            // What leaves by a tunnel has been split by then.
            concern: (side == TcSide::Ingress).then(|| Concern {
                problem: format!(
                    "{seen}: what it redirects or drops is not split, and it may write marks"
                ),
                remedy: format!(
                    "see what it is for (`bpftool prog show id {}`); if it takes packets of the site, \
                     leave {} out of `lan`",
                    program.id, device.name
                ),
                is_certain: false,
            }),
            seen: vec![seen],
            mark: None,
        }
    };
    Ok(found.into_iter().map(finding).collect())
}

fn in_front(device: &Interface, ours: &[u32]) -> Option<Finding> {
    let id = device.xdp.map(|it| it.program_id)?;
    let program = (!ours.contains(&id)).then(|| ForeignProgram::of_id(id))?;
    Some(Finding {
        name: known::of_program(program.name.as_deref()),
        seen: vec![format!("{program}, XDP on {}", device.name)],
        ..Finding::default()
    })
}

fn unseen(why: &str) -> Unseen {
    Unseen {
        what: "BPF programs of others".to_owned(),
        why: why.to_owned(),
        remedy: "run this as root".to_owned(),
    }
}
