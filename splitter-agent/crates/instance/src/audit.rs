//! Asking the kernel where packets of an instance go.

use std::thread;

use splitter_netlink::{Netlink, NetlinkError};
use splitter_steering::routes::{self, AuditPace, RouteAudit};
use tokio::runtime;
use tokio::sync::oneshot;

use crate::{Instance, InstanceError};

/// With ten thousand prefixes there are tens of thousands of questions.
const PACE: AuditPace = AuditPace::OneIn(10);

impl Instance {
    /// Asks the kernel where it sends each class, for every destination and each more specific route
    /// inside. While the instance is down, tells what will not be split once it is up.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub async fn audit_routes(&self) -> Result<RouteAudit, InstanceError> {
        let placements = self.placements()?;
        let is_up = self.pins.exist();
        Ok(routes::audit(&self.netlink, &self.config, &placements, is_up).await?)
    }

    /// Asks as [`Self::audit_routes`] does, in a thread and through a socket of its own and a tenth of the
    /// time, so that nothing has to wait for it. Of a future that is dropped the thread asks on to its
    /// end, or the process's.
    ///
    /// # Errors
    /// When the kernel does not answer, or there is no thread.
    pub async fn audit_routes_aside(&self) -> Result<RouteAudit, InstanceError> {
        let (config, placements) = (self.config.clone(), self.placements()?);
        let is_up = self.pins.exist();
        let (done, answer) = oneshot::channel();
        let ask = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let audit = runtime.map_err(NetlinkError::Open).and_then(|runtime| {
                runtime.block_on(async {
                    let netlink = Netlink::connect()?;
                    routes::audit_paced(&netlink, &config, &placements, is_up, PACE).await
                })
            });
            // Nobody may be waiting any more.
            let _ = done.send(audit);
        };
        let thread = thread::Builder::new().name("route-audit".to_owned());
        thread.spawn(ask).map_err(NetlinkError::Open)?;
        let ended = |_| NetlinkError::Unexpected {
            request: "ask where packets go".to_owned(),
            what: "the thread that asks has ended",
        };
        Ok(answer.await.map_err(ended)??)
    }
}
