//! Flow files of ns-3's RDMA simulations.

use crate::{
    error::Problem,
    listed_flow::ListedFlow,
    number::{host, size, time_ns, whole},
};

pub(crate) fn ns3_flow(text: &str) -> Result<ListedFlow, Problem> {
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
