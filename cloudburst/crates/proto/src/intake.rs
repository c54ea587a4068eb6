//! What comes in: datagrams are parsed, checked for replays and opened before anything is done.

use super::{
    control::SourceDatagram,
    event::{Ecn, FourTuple},
    handshake::Handshake,
    packet::{Header, Opener},
    path_manager::PathManager,
    statistics::TransportStatistics,
    time::Time,
};

/// A datagram that is authentic, as far as the keys tell.
pub(super) struct Opened<'d> {
    pub(super) header: Header,
    pub(super) source: SourceDatagram,
    /// What opened it, unless its peer has that already.
    pub(super) opener: Option<Opener>,
    pub(super) body: &'d [u8],
}

/// Opens a datagram in place. What is not opened is counted.
pub(super) fn open<'d>(
    now: Time,
    (four_tuple, ecn): (FourTuple, Ecn),
    datagram: &'d mut [u8],
    handshake: &mut Handshake,
    paths: &PathManager,
    statistics: &mut TransportStatistics,
) -> Option<Opened<'d>> {
    let bytes = datagram.len();
    statistics.datagrams_received += 1;
    statistics.bytes_received += bytes as u64;
    statistics.congestion_marks += u64::from(ecn == Ecn::CongestionExperienced);
    let Ok(header) = Header::parse(datagram) else {
        statistics.refused.malformed += 1;
        return None;
    };
    let peer = handshake.by_session(header.session);
    if peer.is_some_and(|peer| !paths.may_be_new(peer, &header)) {
        statistics.refused.replayed += 1;
        return None;
    }
    let (body, opener) = handshake.open(peer, &header, datagram, &mut statistics.refused)?;
    // Nothing is kept of an address, and nothing is owed to it, before that.
    handshake.received(now, four_tuple.remote.ip(), bytes);
    let source = SourceDatagram {
        four_tuple,
        peer,
        asker: header.session,
        arrived: now,
        path: header.path,
        sent_us: header.sent_us,
        bytes,
    };
    Some(Opened {
        header,
        source,
        opener,
        body,
    })
}
