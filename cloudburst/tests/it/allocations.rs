//! What a message allocates does not depend on how many datagrams it takes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use cloudburst::{Endpoint, PeerId, SecretKey, Security};

/// Counts what each thread asks for; all of this test is on one.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may allocate after its locals are gone.
    let _ = ALLOCATIONS.try_with(|it| it.set(it.get() + 1));
}

// SAFETY: all is left to the system's allocator; what counts allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGES: u64 = 100;

/// Allocations of both ends for a message, and datagrams that one takes, once all has been in use.
async fn cost(client: &Endpoint, server: &Endpoint, peer: PeerId, bytes: usize) -> (f64, f64) {
    let mut before = (0, 0);
    for number in 0..2 * MESSAGES {
        if number == MESSAGES {
            let sent = client.statistics().await.unwrap().protocol.datagrams_sent;
            before = (ALLOCATIONS.get(), sent);
        }
        let (sent, received) = tokio::join!(client.send(peer, vec![7; bytes]), server.recv());
        sent.unwrap();
        assert_eq!(received.unwrap().message.len(), bytes);
    }
    let allocations = ALLOCATIONS.get() - before.0;
    let sent = client.statistics().await.unwrap().protocol.datagrams_sent - before.1;
    let per_message = |it: u64| it as f64 / MESSAGES as f64;
    (per_message(allocations), per_message(sent))
}

/// Says what a datagram of a long message allocates beyond what any message does, at both ends.
async fn cost_of_datagram(client: Endpoint, server: Endpoint, peer: PeerId) -> f64 {
    let (few, few_datagrams) = cost(&client, &server, peer, 2_000).await;
    let (many, many_datagrams) = cost(&client, &server, peer, 70_000).await;
    println!("{few} for {few_datagrams} datagrams, {many} for {many_datagrams}");
    assert!(many_datagrams > few_datagrams + 40.0);
    (many - few) / (many_datagrams - few_datagrams)
}

#[tokio::test]
async fn a_datagram_allocates_nothing() {
    let config = super::config(2);
    let client = Endpoint::bind(config.clone()).await.unwrap();
    let server = Endpoint::bind(config).await.unwrap();
    let peer = client.connect(server.local_addrs().to_vec()).await.unwrap();
    let allocations = cost_of_datagram(client, server, peer).await;
    assert!(allocations < 0.05, "{allocations} allocations a datagram");
}

#[tokio::test]
async fn a_datagram_between_key_pairs_allocates_nothing() {
    let [ours, theirs] = [1, 2].map(|number| SecretKey::new([number; 32]));
    let listed = Security::with_allowed(theirs.clone(), [ours.public()]);
    let client = Endpoint::bind(super::secured(2, Security::key_pair(ours)));
    let (client, server) = tokio::join!(client, Endpoint::bind(super::secured(2, listed)));
    let (client, server) = (client.unwrap(), server.unwrap());
    let remotes = server.local_addrs().to_vec();
    let peer = client.connect_to(theirs.public(), remotes).await.unwrap();
    let allocations = cost_of_datagram(client, server, peer).await;
    assert!(allocations < 0.05, "{allocations} allocations a datagram");
}
