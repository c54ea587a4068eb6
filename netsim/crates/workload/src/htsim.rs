//! Connection matrices of htsim.

use std::str::SplitWhitespace;

use crate::{
    error::Problem,
    listed_flow::{ListedFlow, StartUnit},
    number::{host, size, time_ns, whole},
};

/// A connection matrix: what its head says, as far as it is read.
pub(crate) struct Matrix {
    nodes: Option<u64>,
    /// How many flows there are.
    pub(crate) said: Option<u64>,
    unit: StartUnit,
}

impl Matrix {
    pub(crate) fn new(unit: StartUnit) -> Self {
        Self {
            nodes: None,
            said: None,
            unit,
        }
    }

    /// Reads a line: a flow, or part of the head.
    pub(crate) fn line(&mut self, text: &str) -> Result<Option<ListedFlow>, Problem> {
        let mut tokens = text.split_whitespace();
        let first = tokens.next().unwrap_or_default();
        match first.split_once("->") {
            Some((from, to)) => self.flow(from, to, tokens).map(Some),
            None => self.head(first, tokens.next()).map(|()| None),
        }
    }

    fn head(&mut self, name: &str, value: Option<&str>) -> Result<(), Problem> {
        let number = |what| whole(what, value.ok_or(Problem::Missing("a number"))?);
        match name {
            "Nodes" => self.nodes = Some(number("Nodes")?),
            "Connections" => self.said = Some(number("Connections")?),
            "Triggers" if number("Triggers")? == 0 => (),
            "Failures" if number("Failures")? == 0 => (),
            "Triggers" | "trigger" => return Err(Problem::Dependent(name.to_owned())),
            "Failures" | "failure" => return Err(Problem::Failure(name.to_owned())),
            _ => return Err(Problem::UnknownToken(name.to_owned())),
        }
        Ok(())
    }

    fn flow(
        &self,
        from: &str,
        to: &str,
        mut tokens: SplitWhitespace<'_>,
    ) -> Result<ListedFlow, Problem> {
        let nodes = self.nodes.ok_or(Problem::NoHead("Nodes"))?;
        self.said.ok_or(Problem::NoHead("Connections"))?;
        let (mut start_ns, mut bytes) = (None, None);
        while let Some(token) = tokens.next() {
            let mut value = |what| tokens.next().ok_or(Problem::Missing(what));
            match token {
                "start" => {
                    let value = value("the time after start")?;
                    start_ns = Some(time_ns("start", value, self.unit.ns())?);
                }
                "size" => bytes = Some(size("size", value("the number after size")?)?),
                // Names and priorities of htsim's own transports.
                "id" | "prio" => {
                    let _: u64 = whole("id or prio", value("the number after id or prio")?)?;
                }
                "trigger" | "send_done_trigger" | "recv_done_trigger" => {
                    return Err(Problem::Dependent(token.to_owned()));
                }
                _ => return Err(Problem::UnknownToken(token.to_owned())),
            }
        }
        let [from, to] = [host("the source", from)?, host("the destination", to)?];
        if let Some(host) = [from, to].into_iter().find(|it| u64::from(*it) >= nodes) {
            return Err(Problem::NoSuchNode { host, nodes });
        }
        Ok(ListedFlow {
            from,
            to,
            bytes: bytes.ok_or(Problem::Missing("size"))?,
            start_ns: start_ns.ok_or(Problem::Missing("start"))?,
            priority: 0,
        })
    }
}
