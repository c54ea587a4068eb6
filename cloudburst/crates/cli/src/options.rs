//! What all commands that use the network have in common.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum, ValueHint};
use cloudburst::{
    BindError, CongestionControl, ConnectError, Endpoint, EndpointConfig, EndpointConfigError,
    PeerId, Ports, Reservation, Schedule, Security,
};

use crate::{
    cli::{ListenArgs, PeerArg},
    keys::{self, KeyFileError, KeyOption},
    values::{BitRate, Dscp, Share},
};

/// Options of the endpoint.
#[derive(Debug, Args)]
#[command(next_help_heading = "Network")]
pub(crate) struct EndpointOptions {
    /// Our secret key, as `keygen` writes it; or keys shared with the peer, one a line, of which
    /// the first is spoken with.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
    /// Do without a key: anybody on the way can read, forge and end messages.
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure_no_key: bool,
    /// Local addresses; one of each interface makes messages take all [default: all addresses]
    #[arg(short, long, value_name = "ADDRESS")]
    pub(crate) bind: Vec<IpAddr>,
    /// Send a share of a link of this rate, whoever else is there, until too much is lost: for a
    /// queue of its own. Without it the rate is found out, and fair to others on any network.
    #[arg(long, value_name = "RATE")]
    reserve: Option<BitRate>,
    /// The share of the link that is reserved, above 0 and at most 1.
    #[arg(long, default_value = "1", requires = "reserve")]
    share: Share,
    /// Code point of what is sent: 0 to 63, ef, cs0 to cs7, af11 to af43.
    #[arg(long, default_value = "0")]
    pub(crate) dscp: Dscp,
    /// How packets are summed up.
    #[arg(long, value_enum, default_value_t = ScheduleName::Mds)]
    pub(crate) schedule: ScheduleName,
}

/// Schedules of the code by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScheduleName {
    /// Exclusive or: the cheapest.
    Default,
    /// Cauchy sums over GF(256): the fewest packets.
    Mds,
    /// The Cloudburst paper's.
    Paper,
}

impl EndpointOptions {
    /// Binds an endpoint that others are to find.
    pub(crate) async fn listen(&self, listen: &ListenArgs) -> anyhow::Result<Endpoint> {
        let mut security = self.security()?;
        match (&mut security, &self.key_file, &listen.allow) {
            (Security::KeyPair(_), Some(file), None) => {
                let file = file.clone();
                return Err(KeyFileError::NobodyAllowed { file }.into());
            }
            (Security::KeyPair(identity), _, Some(allowed)) => {
                identity.allowed = keys::read_allowed(allowed)?.into_iter().collect();
            }
            (_, _, Some(_)) => return Err(KeyFileError::NoPair(KeyOption::Allow).into()),
            (_, _, None) => {}
        }
        let config = self.config(&listen.ports, security)?;
        Ok(Endpoint::bind(config.with_early_requests(true)).await?)
    }

    /// Binds an endpoint and makes the peer known to it.
    pub(crate) async fn connect(
        &self,
        ports: &Ports,
        peer: &PeerArg,
    ) -> anyhow::Result<(Endpoint, PeerId)> {
        self.connect_with(ports, peer, Ok).await
    }

    /// Binds an endpoint with some settings changed, and makes the peer known to it.
    pub(crate) async fn connect_with(
        &self,
        ports: &Ports,
        peer: &PeerArg,
        change: impl FnOnce(EndpointConfig) -> Result<EndpointConfig, EndpointConfigError>,
    ) -> anyhow::Result<(Endpoint, PeerId)> {
        let security = self.security()?;
        let key = match (&security, &self.key_file, &peer.peer_key) {
            (Security::KeyPair(_), Some(file), None) => {
                let file = file.clone();
                return Err(KeyFileError::NoPeerKey { file }.into());
            }
            (Security::KeyPair(_), _, key) => key.as_deref().map(keys::peer_key).transpose()?,
            (_, _, Some(_)) => return Err(KeyFileError::NoPair(KeyOption::PeerKey).into()),
            (_, _, None) => None,
        };
        let remotes = peer.peer.lookup().await?;
        let config = change(self.config(ports, security)?)?;
        let endpoint = Endpoint::bind(config).await?;
        let connected = match key {
            Some(key) => endpoint.connect_to(key, remotes).await,
            None => endpoint.connect(remotes).await,
        };
        match connected {
            // The library names a call of its own there.
            Err(ConnectError::NoSocket { remote }) if !self.bind.is_empty() => {
                Err(NotReached { remote }.into())
            }
            connected => Ok((endpoint, connected?)),
        }
    }

    /// Congestion control as it is asked for.
    pub(crate) fn congestion(&self) -> CongestionControl {
        let reservation = |rate: BitRate| Reservation::new(rate.0).with_share(self.share.0);
        let reserved = self.reserve.map(reservation);
        reserved.map_or(CongestionControl::Adaptive, CongestionControl::Reserved)
    }

    fn security(&self) -> Result<Security, KeyFileError> {
        match &self.key_file {
            Some(file) => keys::read_own(file),
            None if self.insecure_no_key => Ok(Security::Unprotected),
            None => Err(KeyFileError::NoKey),
        }
    }

    fn config(&self, ports: &Ports, security: Security) -> anyhow::Result<EndpointConfig> {
        let schedule = match self.schedule {
            ScheduleName::Default => Schedule::Default,
            ScheduleName::Mds => Schedule::Mds,
            ScheduleName::Paper => Schedule::Paper(Default::default()),
        };
        let config = EndpointConfig::client(security)
            .with_congestion(self.congestion())?
            .with_schedule(schedule)
            .with_dscp(self.dscp.0)?
            .with_ports(ports.clone())?;
        if self.bind.is_empty() {
            return Ok(config);
        }
        match config.with_local(self.bind.iter().copied()) {
            // What the library knows as local addresses.
            Err(error @ EndpointConfigError::Overlap { .. }) => Err(error).context("--bind"),
            bound => Ok(bound?),
        }
    }
}

/// No address of ours that was named can reach the peer.
#[derive(Debug, thiserror::Error)]
#[error(
    "--bind: nothing can be sent to {remote} from there: the addresses are not of its family (IPv4 or IPv6), or reach this machine alone"
)]
struct NotReached {
    remote: SocketAddr,
}

/// Whether an error is one of settings.
pub(crate) fn is_configuration(error: &(dyn std::error::Error + 'static)) -> bool {
    error.is::<KeyFileError>()
        || error.is::<EndpointConfigError>()
        || error.is::<NotReached>()
        || matches!(error.downcast_ref(), Some(BindError::NotLocal { .. }))
}
