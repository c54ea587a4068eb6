//! `cloudburst ping`: messages there and back.

use std::time::{Duration, Instant};

use cloudburst::{Endpoint, EndpointConfig, PeerId, RequestError, SendOptions};
use flow_cli::ExitCode;
use flow_cli::{Signals, print, print_json};
use serde_json::json;
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::CLOSE_WITHIN;
use crate::{
    cli::PingArgs,
    summary::{Times, words},
};

/// What came back, by number.
struct Answer {
    sequence: u64,
    result: Result<Duration, RequestError>,
}

pub(crate) async fn run(args: &PingArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen()?;
    let kept_alive = |config: EndpointConfig| match args.keepalive {
        Some(interval) => config.with_keepalive(interval.0),
        None => Ok(config),
    };
    let connecting = args
        .endpoint
        .connect_with(&args.begin.ports, &args.peer, kept_alive);
    let (endpoint, peer) = connecting.await?;
    if !as_json {
        print(format_args!(
            "ping {}: messages of {} bytes",
            args.peer.peer, args.size.0
        ))?;
    }
    let mut tally = Tally::new();
    let mut waiting = JoinSet::new();
    let mut ticks = tokio::time::interval(args.interval.0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let may_send = args.count.is_none_or(|count| tally.sent < count);
        if !may_send && waiting.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            _ = signals.next() => break,
            Some(answer) = waiting.join_next() => {
                if let Ok(answer) = answer {
                    tally.take(&answer, as_json)?;
                }
            }
            _ = ticks.tick(), if may_send => {
                let message = vec![0x5a; args.size.0];
                waiting.spawn(ping(endpoint.clone(), peer, tally.sent, message, args.timeout.0));
                tally.sent += 1;
            }
        }
    }
    waiting.shutdown().await;
    tally.report(args, as_json)?;
    endpoint.close(CLOSE_WITHIN).await;
    Ok(if tally.times.count() > 0 {
        ExitCode::Ok
    } else {
        ExitCode::Failed
    })
}

async fn ping(
    endpoint: Endpoint,
    peer: PeerId,
    sequence: u64,
    message: Vec<u8>,
    timeout: Duration,
) -> Answer {
    let start = Instant::now();
    // To answer twice does no harm.
    let options = SendOptions::new().with_idempotent(true);
    let reply = endpoint.request_with(peer, message, timeout, options).await;
    let result = reply.map(|_| start.elapsed());
    Answer { sequence, result }
}

struct Tally {
    sent: u64,
    times: Times,
    last_error: Option<String>,
}

impl Tally {
    fn new() -> Self {
        Self {
            sent: 0,
            times: Times::new(),
            last_error: None,
        }
    }

    fn take(&mut self, answer: &Answer, as_json: bool) -> anyhow::Result<()> {
        let text = match &answer.result {
            Ok(time) => {
                self.times.record(*time);
                format!("{}: {}", answer.sequence, words(*time))
            }
            Err(error) => {
                self.last_error = Some(error.to_string());
                format!("{}: {error}", answer.sequence)
            }
        };
        if as_json { Ok(()) } else { print(text) }
    }

    fn report(&self, args: &PingArgs, as_json: bool) -> anyhow::Result<()> {
        let answered = self.times.count();
        if as_json {
            return print_json(&json!({
                "peer": args.peer.peer.to_string(),
                "bytes": args.size.0,
                "sent": self.sent,
                "answered": answered,
                "rtt_ms": self.times.to_json(),
                "last_error": self.last_error,
            }));
        }
        print(format_args!(
            "{} sent, {answered} answered; {}",
            self.sent,
            self.times.to_text()
        ))
    }
}
