//! What counts packets where they leave, redirects them, or notes them.

use splitter_policy::config::PolicyConfig;
use splitter_policy::flow::Class;

use super::balanced::site;
use super::{Course, FAMILIES, Path, SHORT, SYN, Segment, eager, segment};
use crate::border::TUNNEL;
use crate::packet::Ip;

pub(super) fn paths() -> Vec<Path> {
    let mut paths: Vec<Path> = FAMILIES.into_iter().flat_map(of_family).collect();
    let syn = segment(Ip::v4(), 1, SYN, 0).bytes();
    paths.push(Path::new(
        "redirect_opening_v4",
        "redirect",
        eager(),
        &[
            "pass",
            "Short on Short",
            "Started",
            "falls back: opening",
            "dscp 4",
        ],
        move |border| {
            border.redirect()?;
            border.measure(&syn)
        },
    ));
    paths
}

fn of_family((family, frame): (&'static str, Segment)) -> Vec<Path> {
    let counted = |name: &str, does: &[&str], course| {
        let name = format!("{name}_{family}");
        Path::new(name, "count_egress", eager(), does, course)
    };
    let elsewhere: Course = Box::new(move |border| border.measure(&frame(1)));
    let at_tunnel: Course = Box::new(move |border| {
        border.leave_by_tunnel()?;
        border.measure(&marked_long(frame(1)))
    });
    let own_at_tunnel: Course = Box::new(move |border| {
        let mut choosing = site(4);
        choosing.devices[3] = TUNNEL;
        border.balance(&choosing)?;
        border.leave_by_tunnel_unasked()?;
        border.measure(&frame(1))
    });
    let at_site: Course = Box::new(move |border| {
        border.leave_by_site()?;
        border.send_times(&frame(1), SHORT)?;
        border.measure(&frame(1))
    });
    let at_site_first: Course = Box::new(move |border| {
        border.leave_by_site()?;
        border.measure(&frame(1))
    });
    vec![
        counted("count_elsewhere", &["next"], elsewhere),
        counted(
            "count_at_tunnel",
            &["next", &format!("left Long {family}")],
            at_tunnel,
        ),
        counted(
            "count_own_at_tunnel",
            &["next", &format!("left Other {family}")],
            own_at_tunnel,
        ),
        counted("count_at_site", &["next", "came back"], at_site),
        counted(
            "count_at_site_first",
            &["next", "came back", "reverse flow"],
            at_site_first,
        ),
        Path::new(
            format!("redirect_known_short_{family}"),
            "redirect",
            eager(),
            &[
                "redirect",
                "Short on Short",
                "redirected",
                &format!("left Short {family}"),
                "dscp 4",
                "readdressed",
            ],
            move |border| {
                border.redirect()?;
                border.vouch()?;
                border.send_times(&frame(1), SHORT)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("redirect_asking_{family}"),
            "redirect",
            eager(),
            &[
                "redirect",
                "Short on Short",
                "redirected",
                "asked the FIB",
                &format!("left Short {family}"),
                "dscp 4",
                "readdressed",
            ],
            move |border| {
                border.redirect()?;
                border.send_times(&frame(1), SHORT)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("redirect_elsewhere_{family}"),
            "redirect",
            eager(),
            &["pass", "Short on Short", "falls back: not_ours", "dscp 4"],
            move |border| {
                border.send_times(&frame(1), SHORT)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("tap_known_{family}"),
            "tap",
            eager(),
            &["next"],
            move |border| {
                border.send_times(&frame(1), SHORT)?;
                border.measure(&frame(1))
            },
        ),
        Path::new(
            format!("tap_first_{family}"),
            "tap",
            eager(),
            &["next", "tapped flow"],
            move |border| border.measure(&frame(1)),
        ),
    ]
}

/// As the split program leaves a packet of a long flow.
fn marked_long(mut frame: Vec<u8>) -> Vec<u8> {
    const IP: usize = 14;
    let config = PolicyConfig::default();
    let mark = config.mark(Class::Long, Class::Long.own_tunnel()).value();
    let traffic_class = mark << 2;
    if frame[IP] >> 4 == 4 {
        frame[IP + 1] = traffic_class;
    } else {
        frame[IP] = 0x60 | traffic_class >> 4;
        frame[IP + 1] = traffic_class << 4;
    }
    frame
}
