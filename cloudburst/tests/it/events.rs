//! What is heard of peers and paths.

use std::time::Duration;

use cloudburst::{Endpoint, EndpointEvent, Events, GoneReason, KeyMismatch, SecretKey, Security};

use super::{SOON, config, elsewhere, killed, pair, secured, within};

/// The first event of which there is something to be said.
async fn first<T>(events: &mut Events, find: impl Fn(&EndpointEvent) -> Option<T>) -> T {
    within(async {
        loop {
            let event = events.next().await.expect("the endpoint is open");
            if let Some(found) = find(&event) {
                return found;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_server_hears_who_comes_and_by_which_key() {
    let [ours, theirs] = [1, 2].map(|number| SecretKey::new([number; 32]));
    let listed = Security::with_allowed(theirs.clone(), [ours.public()]);
    let client = Endpoint::bind(secured(2, Security::key_pair(ours.clone())));
    let client = client.await.unwrap();
    let server = Endpoint::bind(secured(1, listed)).await.unwrap();
    let (mut heard, mut at_client) = (server.events().unwrap(), client.events().unwrap());
    let peer = client.connect_to(theirs.public(), server.local_addrs());
    let peer = peer.await.unwrap();
    within(client.send(peer, "here I am")).await.unwrap();
    let (who, identity) = first(&mut heard, |event| match event {
        EndpointEvent::PeerKnown { peer, identity } => Some((*peer, *identity)),
        _ => None,
    })
    .await;
    assert_eq!(identity, Some(ours.public()));
    assert_eq!(within(server.recv()).await.unwrap().peer, who);
    let remote = first(&mut at_client, |event| match event {
        EndpointEvent::PathUp { peer: to, path } => (*to == peer).then_some(path.remote),
        _ => None,
    });
    assert_eq!(remote.await, server.local_addrs()[0]);

    server.forget(who).await.unwrap();
    let reason = first(&mut heard, |event| match event {
        EndpointEvent::PeerGone { peer, reason } => (*peer == who).then_some(*reason),
        _ => None,
    });
    assert_eq!(reason.await, GoneReason::Forgotten);
}

#[tokio::test]
async fn a_server_hears_of_a_key_that_is_not_on_its_list() {
    let [listed, stranger, own] = [1, 2, 3].map(|number| SecretKey::new([number; 32]));
    let security = Security::with_allowed(own.clone(), [listed.public()]);
    let server = Endpoint::bind(secured(1, security)).await.unwrap();
    let mut heard = server.events().unwrap();
    let config = secured(2, Security::key_pair(stranger.clone()));
    let config = config.with_lifetime(Duration::from_millis(300)).unwrap();
    let client = Endpoint::bind(config).await.unwrap();
    let peer = client.connect_to(own.public(), server.local_addrs());
    let peer = peer.await.unwrap();
    assert!(within(client.send(peer, "let me in")).await.is_err());
    let (remote, datagrams) = first(&mut heard, |event| match event {
        EndpointEvent::KeyRefused {
            remote,
            mismatch,
            datagrams,
        } => {
            assert_eq!(*mismatch, KeyMismatch::NotListed(stranger.public()));
            Some((*remote, *datagrams))
        }
        _ => None,
    })
    .await;
    assert!(client.local_addrs().contains(&remote), "{remote}");
    let refused = server.statistics().await.unwrap().protocol.refused;
    assert_eq!(datagrams, refused.not_allowed);
}

#[tokio::test]
async fn a_path_that_delivers_no_longer_is_heard_of() {
    let (runtime, server) = elsewhere(config(1)).await;
    let client = Endpoint::bind(config(2)).await.unwrap();
    let peer = client.connect(server.local_addrs()).await.unwrap();
    let mut events = client.events().unwrap();
    within(client.send(peer, "before")).await.unwrap();
    drop(killed(runtime, &server).await);
    let failed = within(client.send(peer, "meanwhile")).await;
    assert!(failed.is_err(), "{failed:?}");
    let down = |event: &EndpointEvent| match event {
        EndpointEvent::PathDown { peer: to, .. } => (*to == peer).then_some(()),
        _ => None,
    };
    first(&mut events, down).await;
}

#[tokio::test]
async fn a_peer_that_closes_is_heard_of() {
    let (client, server, peer) = pair(config(2), config(1)).await;
    let mut events = client.events().unwrap();
    within(client.send(peer, "before")).await.unwrap();
    server.close(SOON).await;
    let reason = first(&mut events, |event| match event {
        EndpointEvent::PeerGone { peer: gone, reason } => (*gone == peer).then_some(*reason),
        _ => None,
    });
    assert_eq!(reason.await, GoneReason::Closed);
}

#[tokio::test]
async fn events_end_with_their_endpoint() {
    let client = Endpoint::bind(config(1)).await.unwrap();
    let mut events = client.events().unwrap();
    client.close(SOON).await;
    assert_eq!(within(events.next()).await, None);
    within(async {
        while client.events().is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
