//! Lines of each format.

use crate::flow_list::{FlowListFormat, ListedFlow, Problem, StartUnit};

/// State of reading a list, line by line.
pub(crate) enum Parser {
    Csv(Option<Columns>),
    Ns3 {
        said: Option<u64>,
    },
    Htsim {
        nodes: Option<u64>,
        said: Option<u64>,
        unit: StartUnit,
    },
}

type Line = Result<Option<ListedFlow>, Problem>;

impl Parser {
    pub(crate) fn new(format: FlowListFormat, unit: StartUnit) -> Self {
        match format {
            FlowListFormat::Csv => Self::Csv(None),
            FlowListFormat::Ns3 => Self::Ns3 { said: None },
            FlowListFormat::Htsim => Self::Htsim {
                nodes: None,
                said: None,
                unit,
            },
        }
    }

    /// How many flows the head of the list says.
    pub(crate) fn said(&self) -> Option<u64> {
        match self {
            Self::Csv(_) => None,
            Self::Ns3 { said } | Self::Htsim { said, .. } => *said,
        }
    }

    /// Reads a line that is neither empty nor a comment: a flow, or part of the head.
    pub(crate) fn line(&mut self, text: &str) -> Line {
        match self {
            Self::Csv(columns) => match columns {
                Some(columns) => columns.flow(text).map(Some),
                None => {
                    *columns = Some(Columns::new(text)?);
                    Ok(None)
                }
            },
            Self::Ns3 { said: Some(_) } => ns3_flow(text).map(Some),
            Self::Ns3 { said } => {
                *said = Some(whole("the number of flows", text)?);
                Ok(None)
            }
            Self::Htsim { nodes, said, unit } => htsim_line(text, nodes, said, *unit),
        }
    }
}

/// Places of the columns of a CSV file.
pub(crate) struct Columns {
    count: usize,
    from: usize,
    to: usize,
    bytes: usize,
    start: usize,
    start_is_us: bool,
    priority: Option<usize>,
}

impl Columns {
    fn new(heading: &str) -> Result<Self, Problem> {
        let names: Vec<&str> = heading.split(',').map(unquoted).collect();
        let find = |name: &str| names.iter().position(|it| *it == name);
        let must = |name| find(name).ok_or(Problem::NoColumn(name));
        let start_ns = find("start_ns");
        let start = start_ns.or_else(|| find("start_us"));
        Ok(Self {
            count: names.len(),
            from: must("from")?,
            to: must("to")?,
            bytes: must("bytes")?,
            start: start.ok_or(Problem::NoColumn("start_ns or start_us"))?,
            start_is_us: start_ns.is_none(),
            priority: find("priority"),
        })
    }

    fn flow(&self, text: &str) -> Result<ListedFlow, Problem> {
        let cells: Vec<&str> = text.split(',').map(unquoted).collect();
        if cells.len() != self.count {
            return Err(Problem::Columns {
                found: cells.len(),
                expected: "as many as the heading has",
            });
        }
        let start_ns = if self.start_is_us {
            time_ns("start_us", cells[self.start], 1e3)?
        } else {
            whole("start_ns", cells[self.start])?
        };
        let priority = match self.priority {
            Some(column) => {
                let number: u64 = whole("priority", cells[column])?;
                u8::try_from(number).map_err(|_| Problem::Number {
                    what: "priority",
                    value: cells[column].to_owned(),
                    must: "a number up to 255",
                })?
            }
            None => 0,
        };
        Ok(ListedFlow {
            from: host("from", cells[self.from])?,
            to: host("to", cells[self.to])?,
            bytes: size("bytes", cells[self.bytes])?,
            start_ns,
            priority,
        })
    }
}

fn unquoted(cell: &str) -> &str {
    let cell = cell.trim();
    let inner = cell.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    inner.unwrap_or(cell)
}

fn ns3_flow(text: &str) -> Result<ListedFlow, Problem> {
    let cells: Vec<&str> = text.split_whitespace().collect();
    let (5..=6, &[from, to, group, .., bytes, start]) = (cells.len(), &cells[..]) else {
        return Err(Problem::Columns {
            found: cells.len(),
            expected: "6 (source, destination, priority group, port, bytes, start), or 5 without a port",
        });
    };
    let _: u64 = whole("the priority group", group)?;
    if cells.len() == 6 {
        let _: u64 = whole("the port", cells[3])?;
    }
    Ok(ListedFlow {
        from: host("the source", from)?,
        to: host("the destination", to)?,
        bytes: size("the size", bytes)?,
        start_ns: time_ns("the start", start, 1e9)?,
        priority: 0,
    })
}

fn htsim_line(
    text: &str,
    nodes: &mut Option<u64>,
    said: &mut Option<u64>,
    unit: StartUnit,
) -> Line {
    let mut tokens = text.split_whitespace();
    let first = tokens.next().unwrap_or_default();
    let Some((from, to)) = first.split_once("->") else {
        let mut number = |what| {
            let value = tokens.next().ok_or(Problem::Missing("a number"))?;
            whole(what, value)
        };
        match first {
            "Nodes" => *nodes = Some(number("Nodes")?),
            "Connections" => *said = Some(number("Connections")?),
            "Triggers" | "Failures" | "trigger" | "failure" => {
                return Err(Problem::Dependent(first.to_owned()));
            }
            _ => return Err(Problem::UnknownToken(first.to_owned())),
        }
        return Ok(None);
    };
    let nodes = nodes.ok_or(Problem::NoHead("Nodes"))?;
    said.ok_or(Problem::NoHead("Connections"))?;
    let (mut start_ns, mut bytes) = (None, None);
    while let Some(token) = tokens.next() {
        let value = tokens.next();
        match token {
            "start" => {
                let value = value.ok_or(Problem::Missing("the time after start"))?;
                let ns = match unit {
                    StartUnit::Ps => 1e-3,
                    StartUnit::Us => 1e3,
                };
                start_ns = Some(time_ns("start", value, ns)?);
            }
            "size" => {
                let value = value.ok_or(Problem::Missing("the number after size"))?;
                bytes = Some(size("size", value)?);
            }
            // Names and priorities of htsim's own transports.
            "id" | "prio" => {
                let value = value.ok_or(Problem::Missing("the number after id or prio"))?;
                let _: u64 = whole("id or prio", value)?;
            }
            "trigger" | "send_done_trigger" | "recv_done_trigger" => {
                return Err(Problem::Dependent(token.to_owned()));
            }
            _ => return Err(Problem::UnknownToken(token.to_owned())),
        }
    }
    let flow = ListedFlow {
        from: host("the source", from)?,
        to: host("the destination", to)?,
        bytes: bytes.ok_or(Problem::Missing("size"))?,
        start_ns: start_ns.ok_or(Problem::Missing("start"))?,
        priority: 0,
    };
    match [flow.from, flow.to]
        .iter()
        .find(|it| u64::from(**it) >= nodes)
    {
        Some(host) => Err(Problem::NoSuchNode { host: *host, nodes }),
        None => Ok(Some(flow)),
    }
}

fn whole(what: &'static str, value: &str) -> Result<u64, Problem> {
    value.parse().map_err(|_| Problem::Number {
        what,
        value: value.to_owned(),
        must: "a whole number",
    })
}

fn host(what: &'static str, value: &str) -> Result<u32, Problem> {
    value.parse().map_err(|_| Problem::Number {
        what,
        value: value.to_owned(),
        must: "the number of a host",
    })
}

fn size(what: &'static str, value: &str) -> Result<u64, Problem> {
    let bytes = whole(what, value)?;
    if bytes == 0 {
        return Err(Problem::Number {
            what,
            value: value.to_owned(),
            must: "at least one byte",
        });
    }
    Ok(bytes)
}

/// Longest time that a run may last, with room: a day.
const MOST_NS: f64 = 86_400e9;

/// Reads a time of which one is `unit_ns`, to the nearest ns.
fn time_ns(what: &'static str, value: &str, unit_ns: f64) -> Result<u64, Problem> {
    let ns = value.parse::<f64>().map(|it| (it * unit_ns).round());
    match ns {
        Ok(ns) if (0.0..=MOST_NS).contains(&ns) => Ok(ns as u64),
        _ => Err(Problem::Number {
            what,
            value: value.to_owned(),
            must: "a time from 0 to a day",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowList, FlowListError};
    use proptest::prelude::*;

    fn parse(format: FlowListFormat, text: &str) -> Result<Vec<ListedFlow>, FlowListError> {
        FlowList::parse(text.as_bytes(), format, StartUnit::Ps).map(|it| it.flows)
    }

    fn flow(from: u32, to: u32, bytes: u64, start_ns: u64) -> ListedFlow {
        ListedFlow {
            from,
            to,
            bytes,
            start_ns,
            priority: 0,
        }
    }

    const CSV: &str = "flow,from,to,bytes,start_ns,priority\n0,3,4,1000,5,2\n1,4,3,2000,9,0\n";
    const NS3: &str = "2\n3 4 3 100 1000 2.000000005\n4 3 3 2000 2.5\n";
    const HTSIM: &str = "Nodes 8\nConnections 2\n3->4 id 1 start 5000 size 1000\n# no flow\n4->3 start 9000 size 2000 prio 1\n";

    #[test]
    fn each_format_has_its_columns() {
        let csv = parse(FlowListFormat::Csv, CSV).expect("it is right");
        let urgent = ListedFlow {
            priority: 2,
            ..flow(3, 4, 1000, 5)
        };
        assert_eq!(csv, [urgent, flow(4, 3, 2000, 9)]);
        let us = "start_us, bytes ,\"to\",from\n1.5,7,2,1\n";
        assert_eq!(
            parse(FlowListFormat::Csv, us),
            Ok(vec![flow(1, 2, 7, 1500)])
        );
        let ns3 = parse(FlowListFormat::Ns3, NS3).expect("it is right");
        assert_eq!(
            ns3,
            [
                flow(3, 4, 1000, 2_000_000_005),
                flow(4, 3, 2000, 2_500_000_000)
            ]
        );
        let htsim = parse(FlowListFormat::Htsim, HTSIM).expect("it is right");
        assert_eq!(htsim, [flow(3, 4, 1000, 5), flow(4, 3, 2000, 9)]);
        let us = FlowList::parse(HTSIM.as_bytes(), FlowListFormat::Htsim, StartUnit::Us);
        assert_eq!(us.expect("it is right").flows[0].start_ns, 5_000_000);
    }

    #[track_caller]
    fn error(format: FlowListFormat, from: &str, to: &str) -> String {
        let text = match format {
            FlowListFormat::Csv => CSV,
            FlowListFormat::Ns3 => NS3,
            FlowListFormat::Htsim => HTSIM,
        };
        assert!(text.contains(from));
        let text = text.replacen(from, to, 1);
        parse(format, &text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        use FlowListFormat::{Csv, Htsim, Ns3};
        for (format, from, to, expected) in [
            (
                Csv,
                "bytes",
                "size",
                "line 1: the heading has no column bytes",
            ),
            (
                Csv,
                "0,3,4",
                "3,4",
                "line 2: it has 5 columns instead of as many as the heading has",
            ),
            (
                Csv,
                "0,3,4",
                "0,3,x",
                "line 2: to is \"x\", which is not the number of a host",
            ),
            (Csv, "0,3,4", "0,3,3", "line 2: host 3 sends to itself"),
            (
                Csv,
                "2000",
                "0",
                "line 3: bytes is \"0\", which is not at least one byte",
            ),
            (
                Csv,
                "5,2",
                "5,256",
                "line 2: priority is \"256\", which is not a number up to 255",
            ),
            (
                Ns3,
                "2\n",
                "x\n",
                "line 1: the number of flows is \"x\", which is not a whole number",
            ),
            (
                Ns3,
                "2\n",
                "3\n",
                "the list has 2 flows, and its head says 3",
            ),
            (
                Ns3,
                "2\n",
                "1\n",
                "line 3: there are more flows than the 1 that the head says",
            ),
            (
                Ns3,
                "2.000000005",
                "-2",
                "line 2: the start is \"-2\", which is not a time from 0 to a day",
            ),
            (
                Ns3,
                "2.000000005",
                "nan",
                "line 2: the start is \"nan\", which is not a time from 0 to a day",
            ),
            (
                Ns3,
                "4 3 3 2000 2.5",
                "4 3 2000 2.5",
                "line 3: it has 4 columns instead of 6 (source",
            ),
            (
                Htsim,
                "Nodes 8\n",
                "",
                "line 2: Nodes is missing before the first flow",
            ),
            (
                Htsim,
                "Connections 2\n",
                "",
                "line 2: Connections is missing before the first flow",
            ),
            (
                Htsim,
                "3->4",
                "3->8",
                "line 3: host 8 is not among the 8 that the head says",
            ),
            (Htsim, "size 1000", "", "line 3: size is missing"),
            (
                Htsim,
                "size 1000",
                "size",
                "line 3: the number after size is missing",
            ),
            (
                Htsim,
                "size 1000",
                "length 1000",
                "line 3: unknown token \"length\"",
            ),
            (
                Htsim,
                "start 5000",
                "trigger 1",
                "line 3: \"trigger\": flows that wait",
            ),
            (
                Htsim,
                "Connections 2",
                "Connection 2",
                "line 2: unknown token \"Connection\"",
            ),
            (
                Htsim,
                "Connections 2",
                "Connections",
                "line 2: a number is missing",
            ),
        ] {
            let found = error(format, from, to);
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
        assert_eq!(
            parse(Csv, "from,to,bytes,start_ns\n"),
            Err(FlowListError::Empty)
        );
    }

    /// What never ends is not read to its end.
    #[test]
    fn a_line_without_end_is_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(b'7'));
        let error = FlowList::parse(endless, FlowListFormat::Ns3, StartUnit::Ps);
        let error = error.expect_err("it is too long").to_string();
        assert_eq!(error, "line 1: it has more than 4096 bytes");
        let error = parse(FlowListFormat::Csv, "\u{0}\u{ff}\n");
        assert!(error.is_err());
        let error = FlowList::parse(&b"\xff\n"[..], FlowListFormat::Csv, StartUnit::Ps);
        assert_eq!(
            error.expect_err("no text").to_string(),
            "line 1: it is not UTF-8"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}", at in 0..60usize, len in 0..20usize) {
            for (format, good) in [
                (FlowListFormat::Csv, CSV), (FlowListFormat::Ns3, NS3), (FlowListFormat::Htsim, HTSIM),
            ] {
                let (at, end) = (at.min(good.len()), (at + len).min(good.len()));
                let _ = parse(format, &text);
                let _ = parse(format, &format!("{}{text}{}", &good[..at], &good[end..]));
            }
        }
    }
}
