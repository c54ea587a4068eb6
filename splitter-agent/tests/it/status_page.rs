//! The status page as a browser shows it, and what it reports whom.

use crate::support::browser;
use crate::support::site;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use browser::{Browser, PROGRAM};
use flow_telemetry::page::{Field, Format, Layout, Status, StatusFuture, StatusTable};
use flow_telemetry::{Metrics, MetricsEndpoint, Readiness, Server, StatusPage};
use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use site::{Connection, Site, on_site};

const HOME: &str = "http://127.0.0.1:9461/";

/// Whether the page is there and its script has shown an answer.
const FOLLOWED: &str = "document.getElementById('updated')?.textContent";

fn status(site: &Site) -> Value {
    let (code, body) = site.get("/status.json").expect("it answers");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

/// The cell of a column in the row of that name.
fn cell(table: &str, row: &str, column: &str) -> String {
    format!(
        "(() => {{ const table = document.querySelector('table[data-key={table}]');
           const at = [...table.tHead.rows[0].cells].findIndex(it => it.dataset.key === '{column}');
           const row = [...table.tBodies[0].rows].find(it => it.cells[0].textContent === '{row}');
           return row && row.cells[at].textContent; }})()"
    )
}

#[test]
fn a_browser_shows_what_goes_on_and_follows_it() {
    require!(Program(PROGRAM));
    on_site(|site| {
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(200_000);
        let browser = Browser::start(site.border().command("sh"), &site.path(""));
        browser.emulate(1_000, "light");
        browser.open(HOME);
        browser.wait_for(FOLLOWED);
        assert_eq!(
            browser.value("document.getElementById('readiness').textContent"),
            "ready"
        );
        assert_eq!(browser.value(&cell("tunnels", "short", "device")), "tun0");
        assert_eq!(browser.value(&cell("tunnels", "long", "state")), "up");
        assert_eq!(browser.value(&cell("tunnels", "long", "health")), "good");

        let rows = "document.querySelectorAll('table[data-key=flows] tbody tr').length";
        browser.wait_for(&format!("{rows} === 1"));
        let packets = cell("classes", "short", "packets");
        let before = browser.value(&packets);
        let mut other = Connection::open(&site.topology);
        // A rate that is one: neither unknown nor nought.
        let rate = cell("classes", "short", "bits_per_s");
        let shown = format!("{rows} === 2 && {packets} !== {before} && /^[1-9]/.test({rate})");
        other.send(10_000);
        // On a starved machine the browser looks seldom. Both flows stay in use until it has, and the
        // other one stays short: some 8 packets, and one every other second.
        let mut sent_at = Instant::now();
        browser.wait_while(&shown, || {
            if sent_at.elapsed() > Duration::from_secs(2) {
                sent_at = Instant::now();
                connection.send(1);
                other.send(1);
            }
        });

        keys_order_and_pause(&browser, &mut other);
        looks(&browser);
        let text = browser.value("document.documentElement.outerHTML");
        let address = site.topology.client.ipv4.to_string();
        assert!(!text.as_str().expect("text").contains(&address), "{text}");

        assert_eq!(browser.complaints(), Vec::<String>::new());
        let asked = browser.requests();
        assert!(asked.len() >= 3, "{asked:?}");
        let inside = |url: &String| url.starts_with(HOME) || url.starts_with("data:");
        assert!(asked.iter().all(inside), "{asked:?}");

        assert!(daemon.end(Signal::SIGTERM).success());
        browser.wait_for("document.getElementById('problem').textContent.startsWith('No new')");
        browser.wait_for("document.body.classList.contains('stale')");
    });
}

fn keys_order_and_pause(browser: &Browser, connection: &mut Connection) {
    let heading = "document.querySelector('table[data-key=flows] th[data-key=bytes]')";
    let first = "document.querySelector('table[data-key=flows] tbody tr').cells[0].textContent";
    browser.value(&format!("{heading}.querySelector('button').click()"));
    assert_eq!(
        browser.value(&format!("{heading}.getAttribute('aria-sort')")),
        "descending"
    );
    let largest = browser.value(first);
    browser.value(&format!("{heading}.querySelector('button').click()"));
    assert_eq!(
        browser.value(&format!("{heading}.getAttribute('aria-sort')")),
        "ascending"
    );
    assert_ne!(browser.value(first), largest);

    browser.value("document.getElementById('pause').click()");
    std::thread::sleep(Duration::from_millis(500)); // for an answer that is on its way
    let shown = browser.value("document.querySelector('main').innerText");
    connection.send(20_000);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        browser.value("document.querySelector('main').innerText"),
        shown
    );
    browser.value("document.getElementById('pause').click()");
    let shown = shown.to_string();
    browser.wait_for(&format!(
        "document.querySelector('main').innerText !== {shown}"
    ));
}

/// Both schemes, and a phone on which nothing sticks out. Pictures are kept for who wants to look.
fn looks(browser: &Browser) {
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.value(ground);
    browser.screenshot(&pictures.join("status-light.png"));
    browser.emulate(1_000, "dark");
    assert_ne!(browser.value(ground), light);
    browser.screenshot(&pictures.join("status-dark.png"));
    browser.emulate(360, "light");
    let width = browser.value("document.documentElement.scrollWidth");
    assert!(width.as_u64().is_some_and(|it| it <= 360), "{width}");
    browser.screenshot(&pictures.join("status-phone.png"));
    browser.emulate(1_000, "light");
}

#[test]
fn addresses_are_shown_only_where_the_configuration_says_so() {
    on_site(|site| {
        let address = site.topology.client.ipv4.to_string();
        for (changes, reported) in [("", false), ("[metrics]\nflow_addresses = true\n", true)] {
            site.configure(changes);
            let daemon = site.run();
            let mut connection = Connection::open(&site.topology);
            connection.send(20_000);
            let status = site.wait_for("the flow", || {
                let status = status(site);
                let flows = status["flows"].as_array().expect("a list").len();
                (flows > 0).then_some(status)
            });
            assert_eq!(status.to_string().contains(&address), reported, "{status}");
            let name = status["flows"][0]["flow"].as_str().expect("a name");
            assert_eq!(name.starts_with('#'), !reported, "{name}");
            let (_, page) = site.get("/").expect("it answers");
            assert_eq!(page.contains(&address), reported);
            // Also without its script the page has rows.
            for row in [
                "<th scope=\"row\">short</th>",
                "tun1",
                &name.replace('>', "&gt;"),
            ] {
                assert!(page.contains(row), "{row}: {page}");
            }
            assert!(daemon.end(Signal::SIGTERM).success());
        }
    });
}

#[test]
fn the_documented_keys_are_those_that_are_served() {
    const DOCUMENT: &str = include_str!("../../../docs/src/reference/status.md");
    on_site(|site| {
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        connection.send(20_000);
        let status = site.wait_for("the flow", || {
            let status = status(site);
            (!status["flows"].as_array().expect("a list").is_empty()).then_some(status)
        });
        let mut reported: Vec<String> = Vec::new();
        for (key, value) in status.as_object().expect("an object") {
            match value.as_array().and_then(|it| it.first()?.as_object()) {
                Some(row) => reported.extend(row.keys().map(|inner| format!("{key}[].{inner}"))),
                None => reported.push(key.clone()),
            }
        }
        let mut documented: Vec<String> = DOCUMENT
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
            .map(|(key, _)| key.to_owned())
            .collect();
        reported.sort();
        documented.sort();
        assert_eq!(documented, reported);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

fn document(site: &Site, path: &str) -> Value {
    let (code, body) = site.get(path).expect("it answers");
    assert_eq!(code, 200, "{body}");
    serde_json::from_str(&body).expect("it is JSON")
}

#[test]
fn last_hour_is_drawn_and_served_as_it_was_measured() {
    const DOCUMENT: &str = include_str!("../../../docs/src/reference/status.md");
    on_site(|site| {
        let daemon = site.run();
        let mut connection = Connection::open(&site.topology);
        let mut sent = 0;
        // Rates are known from the second sample on, ten seconds after the first.
        let history = site.wait_for("three samples", || {
            connection.send(50_000);
            sent += 50_000;
            let history = document(site, "/history.json");
            (history["times_s"].as_array()?.len() >= 3).then_some(history)
        });
        let times = history["times_s"].as_array().expect("a list");
        let ordered = times.windows(2).all(|it| it[0].as_f64() < it[1].as_f64());
        assert!(ordered && times[0].as_f64() < Some(-15.0), "{times:?}");
        let named =
            |row: &Value, named: &str| row.as_object().is_some_and(|it| it.contains_key(named));
        for (list, rows) in [("classes", 2), ("tunnels", 2)] {
            let all = history[list].as_array().expect("a list");
            assert_eq!(all.len(), rows);
            for (key, column) in all.iter().flat_map(|it| it.as_object().expect("an object")) {
                assert!(
                    DOCUMENT.contains(&format!("`{key}`")),
                    "{key} is not documented"
                );
                if let Some(column) = column.as_array() {
                    assert_eq!(column.len(), times.len(), "{key}");
                }
            }
        }
        assert!(named(&history["tunnels"][0], "backlog_bytes"));
        // What was drawn is what was sent, of the intervals in which both are counted.
        let figures = |row: &Value, key: &str| -> Vec<Option<f64>> {
            let figures = row[key].as_array().expect("a list").iter();
            figures.map(Value::as_f64).collect()
        };
        let of_class = figures(&history["classes"][1], "bits_per_s");
        let of_tunnel = figures(&history["tunnels"][1], "left_long_bits_per_s");
        let both = of_class.iter().zip(&of_tunnel);
        let bytes: Vec<(f64, f64)> = both
            .filter_map(|(class, tunnel)| Some((class.as_ref()? * 1.25, tunnel.as_ref()? * 1.25)))
            .collect();
        let of_long: f64 = bytes.iter().map(|it| it.0).sum();
        let by_tunnel: f64 = bytes.iter().map(|it| it.1).sum();
        assert!(
            of_long > 50_000.0 && of_long < 1.5 * f64::from(sent),
            "{of_long} of {sent}"
        );
        assert!(
            (0.5..1.5).contains(&(by_tunnel / of_long)),
            "{by_tunnel} of {of_long} in {bytes:?}"
        );

        let (_, page) = site.get("/").expect("it answers");
        for drawn in [
            "<svg",
            "Sent by tunnel",
            "long tun1",
            "Flows",
            "history.json",
            "events.json",
        ] {
            assert!(page.contains(drawn), "{drawn}");
        }
        std::fs::write(
            Path::new(env!("CARGO_TARGET_TMPDIR")).join("status.html"),
            &page,
        )
        .expect("a file");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

#[test]
fn moves_are_listed_as_events_and_the_page_says_degraded() {
    const DOCUMENT: &str = include_str!("../../../docs/src/reference/status.md");
    const LOG: &str = include_str!("../../../docs/src/reference/log.md");
    on_site(|site| {
        // Whatever of the log is written.
        let mut command = site.command(&["run"]);
        command.env("RUST_LOG", "error");
        let daemon = crate::support::daemon::Daemon::start(command, &site.path("log"));
        site.wait_for("the daemon to be ready", || match site.get("/ready") {
            Ok((200, _)) => Some(()),
            _ => None,
        });
        site.border()
            .run("ip link set tun1 down")
            .expect("ip works");
        let event = |name: &str| {
            let events = document(site, "/events.json");
            let events = events["events"].as_array().expect("a list").clone();
            events.into_iter().find(|it| it["event"] == name)
        };
        let moved = site.wait_for("the move", || event("class_moved"));
        assert_eq!(moved["level"], "warn");
        assert!(
            moved["message"]
                .as_str()
                .is_some_and(|it| it.contains("long")),
            "{moved}"
        );
        assert!(moved["unix_ms"].as_u64() > Some(1_700_000_000_000));
        let down = site.wait_for("the tunnel's death", || event("tunnel_down"));
        assert_eq!(down["device"], "tun1");
        // Who looks at routes while the class moves sees packets that have none, and says "not
        // ready" until the next look.
        let status = site.wait_for("the page to list it and to be ready", || {
            let status = status(site);
            let events = status["events"].as_array().expect("a list");
            let listed = events.iter().any(|it| it["event"] == "class_moved");
            if status["ready"] != true {
                eprintln!("not ready yet: {status}");
            }
            (listed && status["ready"] == true).then_some(status)
        });
        assert_eq!(status["degraded"], true, "{status}");
        let (_, page) = site.get("/").expect("it answers");
        for shown in [
            "data-degraded=\"true\"",
            "ready, but degraded",
            "class_moved",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        assert!(daemon.end(Signal::SIGTERM).success());
    });
    let (_, kept) = DOCUMENT
        .split_once("<!-- kept -->")
        .expect("the list of events");
    let documented: Vec<&str> = kept.split('`').skip(1).step_by(2).collect();
    assert_eq!(documented, splitter_history::NAMES);
    for name in documented {
        assert!(
            LOG.contains(&format!("| `{name}` |")),
            "{name} is no event of the log"
        );
    }
}

#[test]
fn many_watchers_share_a_look() {
    on_site(|site| {
        let daemon = site.run();
        site.wait_for("rates", || status(site)["interval_s"].as_f64());
        // Each look takes its rates over another time, so that equal answers are of one look. A look
        // may end between the two that ask, but not each time.
        let first = site.wait_for("the same answer within a second", || {
            let (first, second) = (status(site), status(site));
            (first == second).then_some(first)
        });
        let later = site.wait_for("another look", || {
            let later = status(site);
            (later["interval_s"] != first["interval_s"]).then_some(later)
        });
        assert!(
            later["interval_s"].as_f64().is_some_and(|it| it >= 0.9),
            "{later}"
        );
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}

const FORMATS: [Format; 7] = [
    Format::Text,
    Format::Count,
    Format::Rate,
    Format::BitsPerSecond,
    Format::Bytes,
    Format::Seconds,
    Format::Share,
];

const LAYOUT: Layout = Layout {
    title: "all formats",
    about: "",
    facts: &[Field::new("fact", "Fact", Format::Seconds)],
    tables: &[StatusTable {
        key: "rows",
        caption: "Rows",
        note: "",
        empty: "",
        columns: &[
            Field::new("value", "text", FORMATS[0]),
            Field::new("value", "count", FORMATS[1]),
            Field::new("value", "rate", FORMATS[2]),
            Field::new("value", "bits", FORMATS[3]),
            Field::new("value", "bytes", FORMATS[4]),
            Field::new("value", "seconds", FORMATS[5]),
            Field::new("value", "share", FORMATS[6]),
            Field::new("word", "state", Format::State),
        ],
    }],
    documents: &[],
};

#[derive(Debug)]
struct Values;

impl Status for Values {
    fn status(&self) -> StatusFuture<'_> {
        let numbers = [
            0.0,
            1.3e-6,
            0.0009994,
            0.00321,
            0.0123,
            0.0994,
            0.43,
            0.9996,
            1.0,
            9.96,
            42.1,
            59.97,
            61.0,
            99.96,
            999.6,
            3_599.7,
            7_321.0,
            12_345.6,
            86_399.9,
            200_000.3,
            123_456_789.1,
            7.7e15,
            -1.0,
        ];
        let mut rows: Vec<Value> = numbers.map(|it| json!({ "value": it })).into();
        rows.extend([
            json!({ "value": null, "word": "<b>up</b>" }),
            json!({ "value": true, "word": "up" }),
            json!({ "value": "a \"word\" & 'another'", "word": "dead" }),
        ]);
        Box::pin(async move { Ok(json!({ "fact": 0.5, "rows": rows })) })
    }
}

/// The script writes values again that the endpoint has written already: nothing may change.
#[test]
fn page_and_script_write_values_alike() {
    require!(Program(PROGRAM));
    let server = Server::bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let address = server.local_addr();
    let metrics = Metrics::new("test").expect("a name");
    let endpoint =
        MetricsEndpoint::new(metrics, Readiness::new()).with_page(StatusPage::new(LAYOUT, Values));
    // Ends with the process.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let serving = server.serve(endpoint, std::future::pending());
        runtime.expect("a runtime").block_on(serving)
    });

    let directory = tempfile::tempdir().expect("a directory");
    let browser = Browser::start(Command::new("sh"), directory.path());
    browser.open(&format!("http://{address}/"));
    browser.wait_for(FOLLOWED);
    let texts =
        "(page) => [...page.querySelectorAll('tbody th, tbody td, dd')].map(it => it.textContent)";
    let by_script = browser.value(&format!("({texts})(document)"));
    let by_endpoint = browser.value(&format!(
        "fetch('/').then(it => it.text())
         .then(it => ({texts})(new DOMParser().parseFromString(it, 'text/html')))"
    ));
    assert_eq!(by_script, by_endpoint);
    assert!(
        by_script
            .as_array()
            .is_some_and(|it| it.len() == 26 * 8 + 1),
        "{by_script}"
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
