//! XDP programs of others: which one an interface has, and how to get along with it.

use std::fmt;

use aya::programs::loaded_programs;

use super::raw::{self, Link};

/// What libxdp (so xdp-tools) and bpfman attach to run several programs on an interface.
const DISPATCHER: &str = "xdp_dispatcher";

/// A program that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignProgram {
    /// Its number, as `bpftool prog` shows it.
    pub id: u32,
    /// Its name, which takes CAP_SYS_ADMIN to be reported.
    pub name: Option<String>,
    /// The programs that it runs where it is a dispatcher, as far as the kernel reports: in the order
    /// in which they were attached, which is not that of running.
    pub runs: Vec<Member>,
}

/// A program that a dispatcher runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u32,
    /// Its name, where the kernel reports it.
    pub name: Option<String>,
}

impl ForeignProgram {
    /// The program of that number.
    pub fn of_id(id: u32) -> Self {
        let name = name_of(id);
        let runs = match name.as_deref() {
            Some(DISPATCHER) => members(id, raw::links()),
            _ => Vec::new(),
        };
        Self { id, name, runs }
    }

    /// Returns true for a program that is there to run those of several others.
    pub fn is_dispatcher(&self) -> bool {
        self.name.as_deref() == Some(DISPATCHER)
    }
}

/// How to have the splitter next to `program` on an interface, or without it.
pub fn remedy(interface: &str, program: Option<&ForeignProgram>) -> String {
    let detach = match program {
        Some(program) if program.is_dispatcher() => format!(
            "unload what it runs (`xdp-loader unload {interface} --all`, or `bpfman unload` for each)"
        ),
        // It may be one, and takes along what it runs.
        Some(ForeignProgram { name: None, .. }) => format!(
            "detach it: with `xdp-loader unload {interface} --all` if it is `xdp_dispatcher`, else \
             with `ip link set dev {interface} xdp off` or by ending the process that attached it"
        ),
        // `ip` takes away only what holds no link of its own.
        _ => format!(
            "detach it with `ip link set dev {interface} xdp off` or by ending the process that attached it"
        ),
    };
    /// Traffic control comes after XDP, whatever runs there.
    const BESIDE: &str = "to run next to it, at TC ingress, write `[steering]` and below it \
                          `mode = \"mark\"` into the configuration";
    format!("{BESIDE}, or {detach}, or leave the interface out of `lan`")
}

pub(super) fn name_of(id: u32) -> Option<String> {
    let mut programs = loaded_programs().flatten();
    let found = programs.find(|program| program.id() == id)?;
    found.name_as_str().map(str::to_owned)
}

/// The programs that take the place of functions of a dispatcher. Others that are linked to it only
/// look, as `xdpdump` does.
fn members(dispatcher: u32, links: impl Iterator<Item = Link>) -> Vec<Member> {
    let replacing = links.filter(|link| link.replaced_in() == Some(dispatcher));
    let ids = replacing.map(|link| link.program_id);
    let member = |id| Member {
        id,
        name: name_of(id),
    };
    ids.map(member).collect()
}

impl fmt::Display for ForeignProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match &self.name {
            Some(name) => write!(f, "`{name}`, number {id}")?,
            None => write!(
                f,
                "number {id}, which `sudo bpftool prog show id {id}` names"
            )?,
        }
        if self.is_dispatcher() {
            write!(f, ", by which libxdp or bpfman runs ")?;
            match self.runs.as_slice() {
                [] => write!(f, "programs that the kernel does not list")?,
                [first, others @ ..] => {
                    write!(f, "{first}")?;
                    others.iter().try_for_each(|it| write!(f, ", {it}"))?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "`{name}` (number {})", self.id),
            None => write!(f, "number {}", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACING: u32 = 2;
    const XDP: u32 = 6;
    /// `BPF_TRACE_FENTRY`.
    const LOOKS: u32 = 24;

    #[test]
    fn what_a_dispatcher_runs_is_distinguished_from_what_only_looks_at_it() {
        let link = |kind, program_id, attach_type, target| Link {
            kind,
            program_id,
            attach_type,
            target,
        };
        let links = [
            link(TRACING, u32::MAX, 0, 7),
            link(TRACING, u32::MAX - 1, LOOKS, 7),
            link(TRACING, u32::MAX - 2, 0, 8),
            link(XDP, u32::MAX - 3, 0, 7),
            link(TRACING, u32::MAX - 4, 0, 7),
        ];
        let ids: Vec<_> = members(7, links.into_iter())
            .iter()
            .map(|it| it.id)
            .collect();
        assert_eq!(ids, [u32::MAX, u32::MAX - 4]);
    }

    #[test]
    fn members_of_a_dispatcher_and_how_to_run_next_to_it_are_named() {
        let member = |id, name: Option<&str>| Member {
            id,
            name: name.map(str::to_owned),
        };
        let dispatcher = |runs| ForeignProgram {
            id: 12,
            name: Some(DISPATCHER.to_owned()),
            runs,
        };
        let reported = dispatcher(vec![member(13, Some("xdp_filter")), member(14, None)]);
        assert_eq!(
            reported.to_string(),
            "`xdp_dispatcher`, number 12, by which libxdp or bpfman runs `xdp_filter` (number 13), \
             number 14"
        );
        let alone = dispatcher(Vec::new()).to_string();
        assert!(alone.ends_with("runs programs that the kernel does not list"));
        let remedy = remedy("eth0", Some(&reported));
        for words in ["`mode = \"mark\"`", "`xdp-loader unload eth0 --all`"] {
            assert!(remedy.contains(words), "{remedy}");
        }
    }

    #[test]
    fn program_without_a_name_is_reported_with_how_to_learn_it() {
        let nameless = ForeignProgram {
            id: 5,
            name: None,
            runs: Vec::new(),
        };
        assert_eq!(
            nameless.to_string(),
            "number 5, which `sudo bpftool prog show id 5` names"
        );
        let remedy = remedy("eth0", Some(&nameless));
        for words in ["`xdp_dispatcher`, else", "`ip link set dev eth0 xdp off`"] {
            assert!(remedy.contains(words), "{remedy}");
        }
    }
}
