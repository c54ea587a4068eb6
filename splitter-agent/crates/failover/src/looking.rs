//! A look at the tunnels' devices, beside the loop that probes.

use std::future::{Future, pending};
use std::pin::Pin;

use super::links::Found;

/// A look that is under way, or none; and whether another one is wanted after it.
#[derive(Default)]
pub(super) struct Looking {
    under_way: Option<Pin<Box<dyn Future<Output = Found>>>>,
    is_wanted: bool,
}

impl Looking {
    /// Something has changed: what a look that is under way has found already may be of before.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Tells if it is time for a look: one is wanted, or has not been for long, and none is under way.
    pub(super) fn is_due(&self, was_long_ago: bool) -> bool {
        (self.is_wanted || was_long_ago) && self.under_way.is_none()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    pub(super) fn begin(&mut self, look: impl Future<Output = Found> + 'static) {
        self.is_wanted = false;
        self.under_way = Some(Box::pin(look));
    }

    /// Waits for what the look finds; for ever where none is under way. May be given up and asked again.
    pub(super) async fn found(&mut self) -> Found {
        let Some(look) = &mut self.under_way else {
            return pending().await;
        };
        let found = look.await;
        self.under_way = None;
        found
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use splitter_health::LinkState;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn one_look_is_under_way_at_a_time_and_news_meanwhile_ask_for_another() {
        let mut looking = Looking::default();
        assert!(looking.found().now_or_never().is_none());
        assert!(!looking.is_due(false));
        assert!(looking.is_due(true));
        let (tell, told) = oneshot::channel();
        looking.begin(async { told.await.unwrap() });
        looking.want();
        assert!(looking.is_under_way() && !looking.is_due(true));
        // Given up, and asked again.
        assert!(looking.found().now_or_never().is_none());
        let links = vec![Some(LinkState::Up(7))];
        let found = Found {
            links: links.clone(),
            ..Found::default()
        };
        tell.send(found).unwrap();
        let found = looking.found().now_or_never();
        assert_eq!(found.map(|it| it.links), Some(links));
        assert!(!looking.is_under_way() && looking.is_due(false));
    }
}
