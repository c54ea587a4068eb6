//! The clients: curl, once for each request.

use std::{path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context as _, Result};
use flow_testbed::topology::Host;
use serde::{Deserialize, Serialize};
use tokio::{process, runtime, time};

use super::schedule::{Kind, Request};

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What for.
    pub kind: Kind,
    /// When it was made, in seconds from the start.
    pub at_s: f64,
    /// From the start of curl's transfer to its end; nothing where it had not ended in time.
    pub seconds: Option<f64>,
}

/// Makes all requests in time from `client` to `server`, and waits for answers until `drain` after
/// the last one. `file` is what is stored. Blocks.
///
/// # Errors
///
/// When no thread can be put into the client's namespace.
pub fn visit(
    client: &Host,
    server: &Host,
    requests: Vec<Request>,
    file: PathBuf,
    drain: Duration,
) -> Result<Vec<Answer>> {
    let (host, address) = (client.clone(), server.ipv4);
    let visiting = client.namespace.spawn(move || -> Result<Vec<Answer>> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let begin = time::Instant::now();
            let mut tasks = Vec::new();
            for (number, request) in requests.into_iter().enumerate() {
                time::sleep_until(begin + request.at).await;
                let mut command = host.namespace.command("curl");
                let port = request.kind.port();
                let url = match request.kind {
                    Kind::Upload => format!("http://{address}:{port}/upload/{number}"),
                    Kind::List | Kind::Video => format!("http://{address}:{port}/{port}"),
                };
                if request.kind == Kind::Upload {
                    command.arg("--upload-file").arg(&file);
                    // Else curl waits for a word of the server before it sends.
                    command.args(["--header", "Expect:"]);
                }
                command.args(["--silent", "--fail", "--output", "/dev/null"]);
                command.args(["--write-out", "%{time_total}", &url]);
                tasks.push((request, tokio::spawn(seconds(command))));
            }
            let deadline = time::Instant::now() + drain;
            let mut answers = Vec::new();
            for (request, task) in tasks {
                let ended = time::timeout_at(deadline, task).await;
                answers.push(Answer {
                    kind: request.kind,
                    at_s: request.at.as_secs_f64(),
                    seconds: ended.ok().and_then(Result::ok).flatten(),
                });
            }
            Ok(answers)
        })
    })?;
    let visited = visiting
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    visited?.context("cannot run the clients")
}

/// How long one transfer took; nothing where it failed.
async fn seconds(command: std::process::Command) -> Option<f64> {
    let mut command = process::Command::from(command);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().parse().ok())?
}
