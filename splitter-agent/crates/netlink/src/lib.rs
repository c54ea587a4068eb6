//! Conversations with the kernel's routing subsystem: bounded in time, repeated when a listing was
//! torn, and with the kernel's own explanation in the errors.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use netlink_packet_route::RouteNetlinkMessage;
use rtnetlink::Handle;
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload, NlasIterator,
};

mod blocking;
mod bulk;
mod change_watch;
pub mod clsact;
mod device_events;
mod ecn_marks;
mod features;
mod interfaces;
mod matched_prefixes;
mod names;
mod neighbours;
mod next_hop_events;
mod next_hop_objects;
mod on_link;
mod qdisc;
mod rights;
mod routing_events;
mod speaker;

pub use bulk::Change;
pub use change_watch::ChangeWatch;
pub use device_events::DeviceEvents;
pub use features::{Channels, DeviceFeatures, device_channels, device_features, takes_redirected};
pub use interfaces::address_family;
pub use interfaces::{
    Address, DeviceTraffic, Interface, Interfaces, NoSuchInterface, ParentDevice, VlanDevice, Xdp,
    XdpMode,
};
pub use matched_prefixes::{
    Dependence, MatchedPrefix, forwarding_heeds_path_mtu, matched_prefixes,
};
pub use names::{Family, InterfaceName, InvalidInterfaceName, list_names};
pub use neighbours::{LinkAddress, NeighbourState, link_address};
pub use next_hop_events::{NextHopChanges, NextHopEvents, StaleNeighbour};
pub use next_hop_objects::{NextHopObjects, ObjectHop};
pub use qdisc::{RootQueue, describe_qdisc, root_queues, root_queues_aside};
pub use rights::{RightsError, keep_rights};
pub use routing_events::{Addition, RoutingEvent, RoutingEvents};

/// The kernel answers within microseconds as long as nobody else holds its one lock for all of
/// routing (RTNL) and this process gets a processor. On a loaded machine on which interfaces or network
/// namespaces come and go, both take seconds: more than 5 s were seen at a load of 10 on two
/// processors. This bounds the wait where something is broken.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A listing is torn when the kernel's list changes meanwhile; this often in a row means churn
/// that no one will ever read consistently.
const LISTING_TRIES: u32 = 20;

/// About as long as the kernel takes to list some hundred interfaces to somebody else.
const OTHER_LIST: Duration = Duration::from_millis(2);

/// An open conversation with the network namespace of the thread that called
/// [`connect`](Self::connect). A thread of its own has it, so that a kernel that is busy with others keeps only
/// those waiting who ask.
#[derive(Debug)]
pub struct Netlink {
    handle: Handle,
    /// The number by which the kernel knows the connection.
    port: u32,
    speaker: speaker::Speaker,
    bulk: Arc<bulk::Bulk>,
}

/// Why the kernel did not do or tell what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// No socket.
    #[error("cannot open a netlink socket: {0}; is netlink forbidden for this service?")]
    Open(#[source] io::Error),
    /// No thread.
    #[error("cannot start a thread that speaks with the kernel: {0}")]
    Thread(#[source] io::Error),
    /// The kernel said no.
    #[error("cannot {request}: {source}{}", explained(explanation.as_deref()))]
    Refused {
        /// What was asked, continuing "cannot".
        request: String,
        /// The error code.
        source: io::Error,
        /// What the kernel added in words.
        explanation: Option<String>,
    },
    /// No answer; it is not known whether the kernel has acted.
    #[error("cannot {request}: no answer from the kernel in {} s", TIMEOUT.as_secs())]
    TimedOut {
        /// What was asked.
        request: String,
    },
    /// The kernel has taken a row of requests without an answer to this one, and may have acted on it.
    #[error("cannot {request}: the kernel's answer got lost")]
    Unanswered {
        /// What was asked.
        request: String,
    },
    /// The list changed each time it was read.
    #[error(
        "cannot {request}: the list changed during each of {LISTING_TRIES} readings; try again \
         when routes are stable"
    )]
    Torn {
        /// What was asked.
        request: String,
    },
    /// The connection ended, or the answer is not one to this question.
    #[error("cannot {request}: the kernel's answer is not understood ({what})")]
    Unexpected {
        /// What was asked.
        request: String,
        /// What came instead.
        what: &'static str,
    },
}

impl NetlinkError {
    /// The kernel's error code, where it gave one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } | Self::Open(source) | Self::Thread(source) => {
                source.raw_os_error()
            }
            _ => None,
        }
    }

    /// Returns true where the kernel may have done what it was asked.
    #[must_use]
    pub fn may_be_done(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Unanswered { .. })
    }

    /// Returns true where a capability is missing.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        matches!(self.os_error(), Some(libc::EPERM | libc::EACCES))
    }
}

impl Netlink {
    /// Opens a conversation. Who asks needs a running tokio runtime with time.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] and [`NetlinkError::Thread`].
    pub fn connect() -> Result<Self, NetlinkError> {
        let speaker::Spoken {
            speaker,
            handle,
            port,
        } = speaker::Speaker::start()?;
        Ok(Self {
            handle,
            port,
            speaker,
            bulk: Arc::new(bulk::Bulk::open().map_err(NetlinkError::Open)?),
        })
    }

    /// Asks for a change and waits until the kernel has made it. `request` continues "cannot".
    pub async fn change(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), NetlinkError> {
        self.exchange(request, message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .await
            .map(|_| ())
    }

    /// Asks the kernel one question.
    pub async fn ask(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<RouteNetlinkMessage, NetlinkError> {
        let mut answer = self.exchange(request, message, NLM_F_REQUEST).await?;
        answer
            .messages
            .pop()
            .ok_or_else(|| NetlinkError::Unexpected {
                request: request.to_owned(),
                what: "an empty answer",
            })
    }

    /// Asks for a list, as it is after all changes that were asked for before. On one socket the kernel makes one at a time, and
    /// refuses those that are asked for meanwhile (`netlink_dump_start` in net/netlink/af_netlink.c): these are asked for again.
    pub async fn list(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        // Also those for which nobody waits any more.
        let made = tokio::time::timeout(TIMEOUT, self.speaker.run(|| ())).await;
        made.map_err(|_| NetlinkError::TimedOut {
            request: request.to_owned(),
        })?;
        let (begun, mut tries) = (Instant::now(), 0);
        while tries < LISTING_TRIES {
            match self
                .exchange(request, message.clone(), NLM_F_REQUEST | NLM_F_DUMP)
                .await
            {
                Ok(answer) if !answer.torn => return Ok(answer.messages),
                Ok(_) => tries += 1,
                Err(error) => match error.os_error() {
                    Some(libc::EINTR) => tries += 1,
                    Some(libc::EBUSY) if begun.elapsed() < TIMEOUT => {
                        tokio::time::sleep(OTHER_LIST).await;
                    }
                    _ => return Err(error),
                },
            }
            tokio::task::yield_now().await;
        }
        Err(NetlinkError::Torn {
            request: request.to_owned(),
        })
    }

    async fn exchange(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Answer, NetlinkError> {
        tokio::time::timeout(TIMEOUT, self.exchange_unbounded(request, message, flags))
            .await
            .unwrap_or_else(|_| {
                Err(NetlinkError::TimedOut {
                    request: request.to_owned(),
                })
            })
    }

    async fn exchange_unbounded(
        &self,
        request: &str,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Answer, NetlinkError> {
        let unexpected = |what| NetlinkError::Unexpected {
            request: request.to_owned(),
            what,
        };
        let mut message = NetlinkMessage::from(message);
        message.header.flags = flags;
        let mut answers = self
            .handle
            .clone()
            .request(message)
            .map_err(|_| unexpected("the connection is closed"))?;
        let mut answer = Answer {
            messages: Vec::new(),
            torn: false,
        };
        while let Some(message) = answers.next().await {
            answer.torn |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(inner) => answer.messages.push(inner),
                NetlinkPayload::Error(error) => {
                    if error.code.is_some() {
                        let explanation = explanation(message.header.flags, &error.header);
                        return Err(refused(request, error.raw_code(), explanation));
                    }
                    return Ok(answer);
                }
                NetlinkPayload::Done(done) => {
                    if done.code != 0 {
                        return Err(refused(request, done.code, None));
                    }
                    return Ok(answer);
                }
                NetlinkPayload::Overrun(_) => answer.torn = true,
                _ => {}
            }
        }
        let complete = !answer.messages.is_empty() && flags & (NLM_F_ACK | NLM_F_DUMP) == 0;
        if complete {
            Ok(answer)
        } else {
            Err(unexpected("the connection ended"))
        }
    }
}

struct Answer {
    messages: Vec<RouteNetlinkMessage>,
    torn: bool,
}

fn refused(request: &str, code: i32, explanation: Option<String>) -> NetlinkError {
    NetlinkError::Refused {
        request: request.to_owned(),
        source: io::Error::from_raw_os_error(code.saturating_abs()),
        explanation,
    }
}

fn explained(explanation: Option<&str>) -> String {
    explanation
        .map(|text| format!(" (\"{text}\")"))
        .unwrap_or_default()
}

/// The words of an extended acknowledgement. They follow the header of the request, whose body
/// `NETLINK_CAP_ACK` has cut off.
fn explanation(flags: u16, error_payload: &[u8]) -> Option<String> {
    const REQUEST_HEADER: usize = 16;
    const NLMSGERR_ATTR_MSG: u16 = 1;
    if flags & NLM_F_ACK_TLVS == 0 || flags & NLM_F_CAPPED == 0 {
        return None;
    }
    NlasIterator::new(error_payload.get(REQUEST_HEADER..)?)
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value())
                .trim_end_matches('\0')
                .to_owned()
        })
        .filter(|text| !text.is_empty())
}
