//! Networks, programs and questions that the tests share.

pub(crate) mod balancers;
pub(crate) mod borders;
pub(crate) mod browser;
pub(crate) mod changed;
pub(crate) mod claims;
pub(crate) mod daemon;
pub(crate) mod datagrams;
pub(crate) mod egress;
pub(crate) mod full_backlog;
pub(crate) mod fwmark;
pub(crate) mod leaving;
pub(crate) mod loaded;
pub(crate) mod nobody;
pub(crate) mod over;
pub(crate) mod pair;
pub(crate) mod pauses;
pub(crate) mod pty;
pub(crate) mod queues;
pub(crate) mod redirected;
pub(crate) mod router;
pub(crate) mod settled;
pub(crate) mod several;
pub(crate) mod site;
pub(crate) mod starved;
pub(crate) mod stranger;
pub(crate) mod two_each;
