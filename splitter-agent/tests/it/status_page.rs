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
