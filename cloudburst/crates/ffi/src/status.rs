//! Outcomes of calls: a code, its text, and what was wrong in particular.

use std::{
    any::Any,
    cell::RefCell,
    ffi::{CStr, CString, c_char},
    panic::{AssertUnwindSafe, catch_unwind},
};

use cloudburst::{
    BindError, Closed, ConnectError, ConnectRefused, EndpointConfigError, GoneReason,
    IdentityError, KeyError, PeerError, PortsError, Reason, RemotesError, ReplyError, RequestError,
    SendError, SendRefused, StartError,
};

/// Outcome of a call: 0 is success, and all else says what went wrong.
///
/// Codes keep their numbers; later versions may add others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum cloudburst_status {
    /// The call has done what it is for.
    Ok = 0,
    /// Nothing has happened within the time that was given; the call may be repeated.
    Pending = 1,
    /// An argument is wrong: NULL where that is not allowed, or a text that is no UTF-8.
    InvalidArgument = 2,
    /// A setting is outside of its bounds, or does not go with another.
    InvalidSetting = 3,
    /// A text is no key, or one of another kind than is needed.
    InvalidKey = 4,
    /// A text is no address, or nothing can be sent there.
    InvalidAddress = 5,
    /// The name of a host cannot be resolved.
    NotResolved = 6,
    /// The text does not fit into the buffer.
    BufferTooSmall = 7,
    /// Another process has the port.
    AddressInUse = 8,
    /// No interface of this machine has the address.
    AddressNotLocal = 9,
    /// A port needs a privilege that the program lacks.
    NotPermitted = 10,
    /// The system does not do what is needed.
    System = 11,
    /// Nobody is known by the id of the peer, or no longer.
    NoPeer = 12,
    /// The message is longer than can be sent.
    TooLarge = 13,
    /// A quota is used up.
    Full = 14,
    /// The time of the message or request is over, or nothing was heard of the peer for too long.
    TimedOut = 15,
    /// No path reaches the peer: nobody listens there.
    Unreachable = 16,
    /// So many packets were sent as the budget allows, and it is not there.
    BudgetSpent = 17,
    /// The receiver had no capacity, to the end.
    Busy = 18,
    /// The receiver refuses the message.
    Refused = 19,
    /// The peer has closed.
    PeerClosed = 20,
    /// The receiver may have taken the message or not: it was restarted, or no longer knows.
    OutcomeUnknown = 21,
    /// Too much was lost at a reserved rate, and nothing is sent any more.
    CircuitBroken = 22,
    /// The message or request was cancelled, its peer was forgotten, or nobody waits for the reply.
    Cancelled = 23,
    /// The peer has the request, and answers that there is no reply.
    NoReply = 24,
    /// The message is no request, or was answered already.
    NotToBeAnswered = 25,
    /// The endpoint is closed.
    Closed = 26,
    /// An error inside of the library: close the endpoint, and report it.
    Panicked = 27,
}

impl cloudburst_status {
    const ALL: [(Self, &'static CStr); 28] = [
        (Self::Ok, c"success"),
        (Self::Pending, c"nothing has happened yet"),
        (Self::InvalidArgument, c"an argument is wrong"),
        (Self::InvalidSetting, c"a setting is wrong"),
        (
            Self::InvalidKey,
            c"a text is no key of the kind that is needed",
        ),
        (
            Self::InvalidAddress,
            c"a text is no address that can be sent to",
        ),
        (Self::NotResolved, c"the name of a host cannot be resolved"),
        (
            Self::BufferTooSmall,
            c"the text does not fit into the buffer",
        ),
        (Self::AddressInUse, c"another process has the port"),
        (
            Self::AddressNotLocal,
            c"no interface of this machine has the address",
        ),
        (Self::NotPermitted, c"a privilege is missing"),
        (Self::System, c"the system does not do what is needed"),
        (Self::NoPeer, c"nobody is known by the id of the peer"),
        (Self::TooLarge, c"the message is too long"),
        (Self::Full, c"a quota is used up"),
        (Self::TimedOut, c"the time is over"),
        (Self::Unreachable, c"no path reaches the peer"),
        (Self::BudgetSpent, c"the budget of packets is spent"),
        (Self::Busy, c"the receiver has no capacity"),
        (Self::Refused, c"the receiver refuses the message"),
        (Self::PeerClosed, c"the peer has closed"),
        (
            Self::OutcomeUnknown,
            c"the receiver may have taken the message or not",
        ),
        (Self::CircuitBroken, c"too much was lost at a reserved rate"),
        (Self::Cancelled, c"cancelled"),
        (Self::NoReply, c"the peer answers that there is no reply"),
        (Self::NotToBeAnswered, c"the message is not to be answered"),
        (Self::Closed, c"the endpoint is closed"),
        (Self::Panicked, c"an error inside of the library"),
    ];
}

/// Returns what a status means, in general. The text is never freed; of a number that is no status it
/// says that.
#[unsafe(no_mangle)]
pub extern "C" fn cloudburst_status_text(status: i32) -> *const c_char {
    let known = cloudburst_status::ALL.iter();
    let known = known.map(|(code, text)| (*code as i32, *text));
    let text = known.into_iter().find(|(code, _)| *code == status);
    text.map_or(c"not a status of this version", |(_, text)| text)
        .as_ptr()
}

/// Returns what went wrong in the last call of this thread that failed, with its values and what to do;
/// an empty text if none has. It lives until the next call of this thread that fails, or its end.
#[unsafe(no_mangle)]
pub extern "C" fn cloudburst_last_error() -> *const c_char {
    // After the thread's variables are gone there is nothing to tell.
    let text = LAST_ERROR.try_with(|last| last.borrow().as_ptr());
    text.unwrap_or(c"".as_ptr())
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Why a call has failed.
#[derive(Debug)]
pub(crate) struct Failure {
    status: cloudburst_status,
    reason: String,
}

impl Failure {
    pub(crate) fn new(status: cloudburst_status, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::argument(format!("`{name}` is NULL"))
    }

    pub(crate) fn argument(reason: impl Into<String>) -> Self {
        Self::new(cloudburst_status::InvalidArgument, reason)
    }

    pub(crate) fn pending() -> Self {
        let reason = "nothing has happened within the time that was given";
        Self::new(cloudburst_status::Pending, reason)
    }

    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no text");
        Self::new(
            cloudburst_status::Panicked,
            format!("the library panicked: {text}"),
        )
    }
}

/// Runs a call so that nothing crosses the boundary but its status.
pub(crate) fn guard(call: impl FnOnce() -> Result<(), Failure>) -> cloudburst_status {
    // What a call has half done is behind a handle of its own, or of the endpoint, whose driver goes on.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let outcome = outcome.unwrap_or_else(|panic| {
        let failure = Failure::panicked(&*panic);
        // What was thrown may have a destructor, which may panic again.
        std::mem::forget(panic);
        Err(failure)
    });
    match outcome {
        Ok(()) => cloudburst_status::Ok,
        Err(Failure { status, reason }) => {
            let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
            let _ = LAST_ERROR.try_with(|last| last.replace(reason));
            status
        }
    }
}

macro_rules! failures {
    ($($error:ty: $status:expr,)*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let status: fn(&$error) -> cloudburst_status = $status;
                Self::new(status(&error), error.to_string())
            }
        })*
    };
}

use cloudburst_status as Status;

failures! {
    EndpointConfigError: |_| Status::InvalidSetting,
    PortsError: |_| Status::InvalidSetting,
    KeyError: |_| Status::InvalidKey,
    IdentityError: |_| Status::InvalidKey,
    getrandom::Error: |_| Status::System,
    Closed: |_| Status::Closed,
    RemotesError: |error| match error {
        RemotesError::Resolve { .. } => Status::NotResolved,
        _ => Status::InvalidAddress,
    },
    BindError: |error| match error {
        BindError::Protocol(StartError::Config(_)) => Status::InvalidSetting,
        BindError::InUse { .. } => Status::AddressInUse,
        BindError::NotLocal { .. } => Status::AddressNotLocal,
        BindError::NotPermitted { .. } => Status::NotPermitted,
        _ => Status::System,
    },
    ConnectError: |error| match error {
        ConnectError::Protocol(ConnectRefused::NoPeerKey) => Status::InvalidKey,
        ConnectError::Protocol(ConnectRefused::TooManyPeers(_)) => Status::Full,
        ConnectError::Closed(_) => Status::Closed,
        _ => Status::InvalidAddress,
    },
    PeerError: |error| match error {
        PeerError::Closed(_) => Status::Closed,
        _ => Status::NoPeer,
    },
    SendError: of_sending,
    RequestError: |error| match error {
        RequestError::Refused(error) => of_refusal(error),
        RequestError::Undelivered(error) => of_reason(error.reason),
        RequestError::Failed(_) => Status::NoReply,
        RequestError::PeerGone(reason) => of_going(*reason),
        RequestError::Closed(_) => Status::Closed,
        _ => Status::TimedOut,
    },
    ReplyError: |error| match error {
        ReplyError::Cancelled => Status::Cancelled,
        ReplyError::Send(error) => of_sending(error),
        _ => Status::NotToBeAnswered,
    },
}

fn of_sending(error: &SendError) -> Status {
    match error {
        SendError::Refused(error) => of_refusal(error),
        SendError::Undelivered(error) => of_reason(error.reason),
        _ => Status::Closed,
    }
}

fn of_refusal(error: &SendRefused) -> Status {
    match error {
        SendRefused::TooLarge { .. } => Status::TooLarge,
        SendRefused::Full { .. } => Status::Full,
        SendRefused::CircuitBroken => Status::CircuitBroken,
        SendRefused::NoPeer | SendRefused::ForeignPeer(_) => Status::NoPeer,
        _ => Status::InvalidArgument,
    }
}

/// Returns the status with which messages to a peer end that is gone for this reason.
fn of_going(reason: GoneReason) -> Status {
    match reason {
        GoneReason::Forgotten => Status::Cancelled,
        GoneReason::Silent => Status::TimedOut,
        // Closed, and what later versions know.
        _ => Status::PeerClosed,
    }
}

fn of_reason(reason: Reason) -> Status {
    match reason {
        Reason::BudgetSpent => Status::BudgetSpent,
        Reason::TimedOut => Status::TimedOut,
        Reason::Unreachable => Status::Unreachable,
        Reason::Busy => Status::Busy,
        Reason::Refused => Status::Refused,
        Reason::CircuitBroken => Status::CircuitBroken,
        Reason::Cancelled => Status::Cancelled,
        Reason::PeerClosed => Status::PeerClosed,
        // Stale, unknown, and what later versions know.
        _ => Status::OutcomeUnknown,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn last_error() -> String {
        // SAFETY: it points to a text of this thread, which no call changes meanwhile.
        let text = unsafe { CStr::from_ptr(cloudburst_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_words() {
        let status = guard(|| panic!("the sky falls"));
        assert_eq!(status, Status::Panicked);
        assert!(last_error().contains("the sky falls"), "{}", last_error());
        let status = guard(|| std::panic::panic_any(7));
        assert_eq!(status, Status::Panicked);
    }

    #[test]
    fn the_last_error_is_that_of_the_last_call_that_failed_on_this_thread() {
        assert_eq!(last_error(), "");
        guard(|| Err(Failure::null("message")));
        guard(|| Ok(()));
        std::thread::spawn(|| guard(|| Err(Failure::argument("another"))))
            .join()
            .unwrap();
        assert_eq!(last_error(), "`message` is NULL");
        guard(|| Err(Failure::argument("a\0b")));
        assert_eq!(last_error(), "a b", "a NUL ends no text");
    }

    #[test]
    fn a_request_whose_peer_is_gone_ends_as_a_message_to_it_would() {
        for (reason, status) in [
            (GoneReason::Forgotten, Status::Cancelled),
            (GoneReason::Silent, Status::TimedOut),
            (GoneReason::Closed, Status::PeerClosed),
        ] {
            let ended = guard(|| Err(RequestError::PeerGone(reason).into()));
            assert_eq!(ended, status, "{reason:?}");
        }
    }

    #[test]
    fn each_status_has_its_number_and_a_text_of_its_own() {
        let texts: HashSet<_> = Status::ALL.iter().map(|(_, text)| text).collect();
        assert_eq!(texts.len(), Status::ALL.len());
        for (number, (status, text)) in (0..).zip(Status::ALL) {
            assert_eq!(status as i32, number);
            // SAFETY: it points to a text that is never freed.
            let said = unsafe { CStr::from_ptr(cloudburst_status_text(number)) };
            assert_eq!(said, text);
        }
        for unknown in [-1, Status::ALL.len() as i32, i32::MAX, i32::MIN] {
            // SAFETY: as above.
            let said = unsafe { CStr::from_ptr(cloudburst_status_text(unknown)) };
            assert_eq!(said, c"not a status of this version");
        }
    }
}
