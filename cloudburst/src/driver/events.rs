//! What the state machine says, and what becomes of it: until the end.

use std::{
    sync::atomic::Ordering,
    task::{Context, Poll},
};

use super::{
    super::{Received, RequestError, SendError, closing::Farewell, runtime::Runtime},
    Driver,
};
use cloudburst_proto::{Event, Failure, FailureReason, FourTuple, MessageKind, PeerId};

impl<R: Runtime> Driver<R> {
    pub(super) fn take_events(&mut self) -> bool {
        let mut is_busy = false;
        while let Some(event) = self.machine.poll_event() {
            is_busy = true;
            self.take_event(event);
        }
        is_busy
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Received {
                peer,
                four_tuple,
                id,
                kind,
                message,
            } => self.deliver((peer, four_tuple), (id, kind), message),
            Event::Delivered { id, receipt } => {
                let completion = &mut self.statistics.completion;
                completion.record(id.peer(), receipt, self.runtime.unix_time());
                let bytes = self.outgoing.bytes(id);
                if let Some((closing, bytes)) = self.closing.as_mut().zip(bytes) {
                    closing.report.delivered.add(bytes);
                }
                self.outgoing.resolve(id, Ok(receipt));
                self.unpark();
            }
            Event::Undelivered { id, failure } => {
                let bytes = self.outgoing.bytes(id);
                if let Some((closing, bytes)) = self.closing.as_mut().zip(bytes) {
                    closing.report.abandoned(bytes, &failure);
                }
                self.outgoing
                    .resolve(id, Err(SendError::Undelivered(failure)));
                self.unpark();
            }
            Event::Cancelled { peer, id } => self.unanswered.cancel(peer, id),
            Event::RotatePort { socket } => self.rotate_port(socket),
            other => self.announce(other),
        }
    }

    fn deliver(
        &mut self,
        (peer, path): (PeerId, FourTuple),
        (id, kind): (u64, MessageKind),
        message: Vec<u8>,
    ) {
        let now = self.now();
        self.last_received = Some(now);
        let request = match kind {
            MessageKind::Reply { to } => return self.outgoing.reply(peer, to, Ok(message.into())),
            MessageKind::Failure { to } => {
                let failure = RequestError::Failed(Failure::from_bytes(&message));
                return self.outgoing.reply(peer, to, Err(failure));
            }
            MessageKind::Request if !self.inbox.has_taker.load(Ordering::Relaxed) => {
                let failure = Failure::from(FailureReason::NoHandler);
                return self.fail(now, peer, id, failure.to_bytes());
            }
            MessageKind::Request => Some(self.unanswered.insert(peer, id)),
            MessageKind::Message => None,
        };
        let bytes = message.len();
        let before = self.inbox.bytes.fetch_add(bytes, Ordering::Relaxed);
        let received = Received {
            peer,
            identity: self.machine.peer_key(peer),
            message: message.into(),
            received_at: self.instant(now),
            path,
            request,
        };
        // The protocol hands over what there is capacity for; a handle may be dropped meanwhile.
        debug_assert!(before == 0 || before + bytes <= self.inbox.most_bytes);
        if self.inbox.messages.try_send(received).is_err() {
            self.inbox.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.statistics.sockets.inbox_overflows += 1;
        }
    }

    /// Tries those that wait for capacity, until one has to wait on. To try only one would leave
    /// the others for good if that is refused and nothing else is under way.
    fn unpark(&mut self) {
        let now = self.now();
        while let Some(send) = self.parked.pop_front() {
            let others = self.parked.len();
            self.send(now, send);
            if self.parked.len() > others {
                break;
            }
        }
    }

    /// Abandons what is still under way, notes what has become of what was under way when the endpoint
    /// began to close, and begins to say goodbye.
    pub(super) fn end(&mut self) {
        let now = self.now();
        let mut report = self
            .closing
            .as_ref()
            .map_or_else(Default::default, |it| it.report);
        for parked in self.parked.drain(..) {
            report.lost.add(parked.message.len());
        }
        for id in self.outgoing.ids() {
            self.machine.cancel(now, id);
        }
        while let Some(event) = self.machine.poll_event() {
            // Whoever waits for it learns that the endpoint is closed.
            if let Event::Undelivered { id, failure } = event
                && let Some(bytes) = self.outgoing.bytes(id)
            {
                report.abandoned(bytes, &failure);
            }
        }
        self.machine.close(now);
        self.farewell = Some(Farewell::new(now, report));
    }

    /// Says goodbye to all peers, and then reports to those who have closed the endpoint. Nothing is
    /// received any more: who has been told is not to believe that somebody is here.
    pub(super) fn say_goodbye(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(Farewell { report, ends }) = self.farewell else {
            return Poll::Ready(());
        };
        loop {
            while self.transmit(context) {}
            let now = self.now();
            let Some(next) = self.machine.next_goodbye().filter(|_| now < ends) else {
                break;
            };
            // What waits for a full socket cannot be hurried.
            let next = self.io.retry_at(now).unwrap_or(next);
            match self.poll_timer(context, now, Some(next)) {
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => break,
            }
        }
        for done in self.closing.iter_mut().flat_map(|it| it.done.drain(..)) {
            let _ = done.send(report);
        }
        Poll::Ready(())
    }
}
