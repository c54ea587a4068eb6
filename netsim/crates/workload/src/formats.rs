//! Lines of each format.

use crate::{
    columns::Columns,
    error::Problem,
    htsim::Matrix,
    listed_flow::{FlowListFormat, ListedFlow, StartUnit},
    ns3::ns3_flow,
    number::whole,
};

/// State of reading a list, line by line.
pub(crate) enum Parser {
    Csv(Option<Columns>),
    Ns3 { said: Option<u64> },
    Htsim(Matrix),
}

impl Parser {
    pub(crate) fn new(format: FlowListFormat, unit: StartUnit) -> Self {
        match format {
            FlowListFormat::Csv => Self::Csv(None),
            FlowListFormat::Ns3 => Self::Ns3 { said: None },
            FlowListFormat::Htsim => Self::Htsim(Matrix::new(unit)),
        }
    }

    /// How many flows the head of the list says.
    pub(crate) fn said(&self) -> Option<u64> {
        match self {
            Self::Csv(_) => None,
            Self::Ns3 { said } => *said,
            Self::Htsim(matrix) => matrix.said,
        }
    }

    /// Reads a line that is neither empty nor a comment: a flow, or part of the head.
    pub(crate) fn line(&mut self, text: &str) -> Result<Option<ListedFlow>, Problem> {
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
            Self::Htsim(matrix) => matrix.line(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::FlowListError, flow_list::FlowList};
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
        let quoted = "\"name, of the flow\", \"from\",to,bytes,\"start_ns\"\n\"a, \"\"b\"\", c\",1,2,\"7\",9\nd,3,4,5,6\n";
        assert_eq!(
            parse(FlowListFormat::Csv, quoted),
            Ok(vec![flow(1, 2, 7, 9), flow(3, 4, 5, 6)])
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
        let none = HTSIM.replace("Connections", "Triggers 0\nFailures 0\nConnections");
        assert_eq!(parse(FlowListFormat::Htsim, &none), Ok(htsim));
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
            (
                Csv,
                "0,3,4",
                "\"0,3\",4",
                "line 2: it has 5 columns instead of as many as the heading has",
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
                "Connections 2\nTriggers 1",
                "line 3: \"Triggers\": flows that wait",
            ),
            (
                Htsim,
                "Connections 2",
                "Failures 1\nConnections 2",
                "line 2: \"Failures\": failures are not taken",
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

    #[test]
    fn a_flow_has_the_line_that_it_is_from() {
        let list = FlowList::parse(HTSIM.as_bytes(), FlowListFormat::Htsim, StartUnit::Ps);
        let list = list.expect("it is right");
        let lines = [0, 1, 2].map(|flow| list.line(flow));
        assert_eq!(lines, [Some(3), Some(5), None]);
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
