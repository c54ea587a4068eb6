use std::sync::mpsc;
use std::time::Duration;

use caps::{CapSet, Capability};
use flow_testbed::namespace::Namespace;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Program, Root};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::runtime;

use crate::Netlink;

/// Runs a test on a thread that does all of its work, in a namespace.
fn in_namespace(devices: usize, test: impl AsyncFnOnce(&Netlink) + Send) {
    let router = Namespace::new("speaker").unwrap();
    let pairs = (0..devices).map(|it| format!("link add a{it} type veth peer name b{it}\n"));
    router
        .run_with_input("ip -batch -", &pairs.collect::<String>())
        .unwrap();
    let run = || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        runtime
            .unwrap()
            .block_on(async { test(&Netlink::connect().unwrap()).await });
    };
    router.enter(run).unwrap();
}

#[test]
fn kernel_that_is_busy_keeps_only_those_waiting_who_ask() {
    require!(Root, Program("ip"));
    in_namespace(1, async |netlink| {
        let (release, held) = mpsc::channel();
        let holds = netlink.speaker.run(move || held.recv().unwrap());
        let mut both = Box::pin(async { tokio::join!(holds, netlink.interfaces()) });
        assert!((&mut both).now_or_never().is_none());
        // This thread does other things meanwhile.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!((&mut both).now_or_never().is_none());
        release.send(()).unwrap();
        let (held, interfaces) = both.await;
        assert_eq!(held, Some(()));
        assert!(
            interfaces
                .unwrap()
                .named(&"a0".to_owned().try_into().unwrap())
                .is_ok()
        );
    });
}

#[test]
fn lists_that_are_asked_for_at_once_are_made_one_after_the_other() {
    require!(Root, Program("ip"));
    in_namespace(100, async |netlink| {
        let last = "b99".to_owned().try_into().unwrap();
        let lists = join_all((0..16).map(|_| netlink.interfaces())).await;
        for list in lists {
            assert!(list.unwrap().named(&last).is_ok());
        }
    });
}

#[test]
fn thread_has_the_one_right_that_routing_takes() {
    require!(Root, Program("ip"));
    in_namespace(0, async |netlink| {
        let theirs = netlink.speaker.run(|| caps::read(None, CapSet::Permitted));
        let theirs = theirs.await.unwrap().unwrap();
        assert!(
            theirs.iter().all(|it| *it == Capability::CAP_NET_ADMIN),
            "{theirs:?}"
        );
        assert!(caps::read(None, CapSet::Permitted).unwrap().len() > 1);
    });
}
