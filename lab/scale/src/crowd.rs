//! A server and the processes of its clients, seen by who started them.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{
    clients::{Job, Order},
    process::{Usage, monotonic, most_open_files},
    server::Server,
    worker::Worker,
};

/// Open files of a client: a socket and a timer.
const FILES_OF_A_CLIENT: u64 = 2;
/// What a process has open besides.
const OTHER_FILES: u64 = 256;
/// Until peers send that send at the same time: each process has heard of it by then.
const LEAD: Duration = Duration::from_secs(2);

/// A server and so many clients that it knows.
pub(crate) struct Crowd {
    pub(crate) server: Server,
    processes: Vec<Worker>,
}

impl Crowd {
    /// Starts a server, and clients that have delivered a message each. They are in as few processes as may
    /// have that many files open.
    pub(crate) fn gather(peers: u32, keepalive: Option<Duration>) -> Result<Self> {
        let server = Server::start(peers)?;
        let most = most_clients(most_open_files()?)?;
        let mut processes = Vec::new();
        for (first, count) in parts(peers, most) {
            let job = Job {
                first,
                count,
                server: server.address,
                open_files: FILES_OF_A_CLIENT * u64::from(count) + OTHER_FILES,
                keepalive_s: keepalive.map(|it| it.as_secs()),
            };
            let job = serde_json::to_string(&job)?;
            processes.push(Worker::start(["--clients", &job])?);
        }
        for process in &mut processes {
            let () = process.hear()?;
        }
        Ok(Self { server, processes })
    }

    /// Has one client deliver so many messages, some of them under way at the same time.
    pub(crate) fn send_in_a_row(&mut self, messages: u64) -> Result<()> {
        self.processes[0].tell(&serde_json::to_string(&Order::InARow { messages })?)?;
        self.processes[0].hear()
    }

    /// Has each client send a message at the same time. Returns when each was delivered, and nothing for one
    /// that was not.
    pub(crate) fn send_at_once(&mut self) -> Result<Vec<Option<Duration>>> {
        let begin = monotonic()? + LEAD;
        let order = serde_json::to_string(&Order::AtOnce { begin })?;
        for process in &mut self.processes {
            process.tell(&order)?;
        }
        let mut times = Vec::new();
        for process in &mut self.processes {
            times.extend(process.hear::<Vec<Option<Duration>>>()?);
        }
        Ok(times)
    }

    /// What the process of the first client has taken.
    pub(crate) fn client_usage(&self) -> Result<Usage> {
        self.processes[0].usage()
    }
}

/// Clients that fit into a process that may have so many files open.
fn most_clients(files: u64) -> Result<u32> {
    let most = files.saturating_sub(OTHER_FILES) / FILES_OF_A_CLIENT;
    ensure!(
        most > 0,
        "a process may have {files} files open, and {} are needed: `ulimit -Hn 4096` as root",
        OTHER_FILES + FILES_OF_A_CLIENT
    );
    Ok(u32::try_from(most).unwrap_or(u32::MAX))
}

/// The number of the first client of each process, and how many it has.
fn parts(peers: u32, most: u32) -> impl Iterator<Item = (u32, u32)> {
    let processes = peers.div_ceil(most);
    (0..processes).map(move |number| {
        let until = |part: u32| (u64::from(peers) * u64::from(part) / u64::from(processes)) as u32;
        let first = until(number);
        (first + 1, until(number + 1) - first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_parted_among_as_few_processes_as_hold_them() {
        assert_eq!(parts(10, 10).collect::<Vec<_>>(), [(1, 10)]);
        assert_eq!(parts(11, 5).collect::<Vec<_>>(), [(1, 3), (4, 4), (8, 4)]);
        assert_eq!(
            parts(15_000, 9_872).collect::<Vec<_>>(),
            [(1, 7_500), (7_501, 7_500)]
        );
    }

    #[test]
    fn process_that_may_open_too_few_files_for_any_client_is_refused() {
        assert_eq!(most_clients(20_000).unwrap(), 9_872);
        assert_eq!(most_clients(258).unwrap(), 1);
        let refused = most_clients(257).unwrap_err().to_string();
        assert!(refused.contains("257"), "{refused}");
        assert!(refused.contains("258"), "{refused}");
    }
}
