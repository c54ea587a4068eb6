//! Page loads in a real browser: headless Chromium fetches a page of usual size from nginx.
//!
//! Each load is by a browser of its own, so that nothing is cached and all connections are new: what others call the first
//! view. The page itself tells when its load event began, which is what the HTTP Archive and WebPageTest call the load time.

use std::{
    fs,
    path::Path,
    process::Stdio,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use flow_testbed::{
    namespace::NamespaceError,
    require::BROWSER,
    topology::{Host, Topology},
};
use tokio::{process, runtime, time};

/// The server's port for pages.
pub(crate) const PORT: u16 = 8004;
/// Directory of the page, below the server's root.
const PLACE: &str = "page";
/// A load that has not ended by then has failed.
const LOAD_BOUND: Duration = Duration::from_secs(20);
/// Bytes of the document.
const DOCUMENT_BYTES: usize = 18_000;
/// A picture of one pixel; decoders do not read what comes after it.
const PICTURE: &[u8] = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff!\xf9\x04\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// Files of one type.
struct Part {
    suffix: &'static str,
    media_type: &'static str,
    count: usize,
    /// Of all of them together.
    bytes: usize,
}

/// As many, and as large together, as those of a desktop page are in the median (HTTP Archive, October 2024, by the Web Almanac
/// 2024, page weight), but for the number of style sheets, which is ours.
const PARTS: [Part; 3] = [
    Part {
        suffix: "css",
        media_type: "text/css",
        count: 8,
        bytes: 78_000,
    },
    Part {
        suffix: "js",
        media_type: "text/javascript",
        count: 24,
        bytes: 613_000,
    },
    Part {
        suffix: "gif",
        media_type: "image/gif",
        count: 18,
        bytes: 1_054_000,
    },
];

/// A load that was tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PageLoad {
    /// When it was begun, in seconds from the start.
    pub(crate) at_s: f64,
    /// From the start of the navigation to that of the load event, in milliseconds; nothing where the page or a part of it
    /// did not come.
    pub(crate) ms: Option<f64>,
}

/// A browser at work.
pub(crate) type Browsing = JoinHandle<Result<Result<Vec<PageLoad>>, NamespaceError>>;

/// Waits until the last load has ended.
///
/// # Errors
///
/// When the browser could not be started.
pub(crate) fn ended(browsing: Browsing) -> Result<Vec<PageLoad>> {
    let loads = browsing
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    loads?
}

/// Files of the page without the document.
pub(crate) fn file_count() -> usize {
    PARTS.iter().map(|it| it.count).sum()
}

/// Bytes of all files.
pub(crate) fn page_bytes() -> usize {
    DOCUMENT_BYTES + PARTS.iter().map(|it| it.bytes).sum::<usize>()
}

/// Writes the page below the server's `root`.
///
/// # Errors
///
/// If a file cannot be written.
pub(crate) fn write(root: &Path) -> Result<()> {
    let place = root.join(PLACE);
    fs::create_dir_all(&place)?;
    fs::write(place.join("index.html"), document())?;
    for part in &PARTS {
        for (number, bytes) in sizes(part).enumerate() {
            let file = place.join(format!("{number}.{}", part.suffix));
            fs::write(file, content(part.suffix, bytes))?;
        }
    }
    Ok(())
}

/// What nginx needs to serve it from `address`, with connections that stay open between files, as browsers expect.
pub(crate) fn nginx(address: std::net::Ipv4Addr, root: &Path) -> String {
    let types: String = PARTS
        .iter()
        .map(|it| format!("{} {}; ", it.media_type, it.suffix))
        .collect();
    format!(
        "server {{
           listen {address}:{PORT}; root {}/{PLACE}; keepalive_timeout 75;
           types {{ text/html html; {types}}}
         }}",
        root.display()
    )
}

/// Loads the page in the client's namespace, one load after the other, until `length` has passed. `directory` is for the
/// browsers' profiles.
///
/// # Errors
///
/// When no thread can be started.
pub(crate) fn browse(topology: &Topology, directory: &Path, length: Duration) -> Result<Browsing> {
    let (host, directory) = (topology.client.clone(), directory.to_owned());
    let url = format!("http://{}:{PORT}/index.html", topology.server.ipv4);
    let browsing = topology
        .client
        .namespace
        .spawn(move || -> Result<Vec<PageLoad>> {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let begin = Instant::now();
            let mut loads = Vec::new();
            while begin.elapsed() < length {
                let at_s = begin.elapsed().as_secs_f64();
                let profile = directory.join(format!("browser-{}", loads.len()));
                let ms = runtime.block_on(load(&host, &url, &profile))?;
                loads.push(PageLoad { at_s, ms });
            }
            Ok(loads)
        });
    browsing.context("cannot run the browser")
}

async fn load(host: &Host, url: &str, profile: &Path) -> Result<Option<f64>> {
    fs::create_dir_all(profile)?;
    let mut command = host.namespace.command(BROWSER);
    command
        // Everything runs as root, which the sandbox refuses, and nothing is loaded that is not ours.
        .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        // The namespace leads nowhere; that nothing is tried spares the time.
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .args(["--no-first-run", "--no-proxy-server", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(url)
        .env("HOME", profile)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut command = process::Command::from(command);
    let output = time::timeout(LOAD_BOUND, command.kill_on_drop(true).output()).await;
    // What is left goes with the directory that it is in.
    let _ = fs::remove_dir_all(profile);
    match output {
        Ok(output) => {
            let output = output.with_context(|| format!("cannot start {BROWSER}"))?;
            Ok(load_ms(&String::from_utf8_lossy(&output.stdout)))
        }
        Err(_) => Ok(None),
    }
}

/// The attribute that the page writes its time, and how many of its files have come, into.
const ATTRIBUTE: &str = "data-loaded";

/// Reads a page that was loaded.
fn load_ms(document: &str) -> Option<f64> {
    let (_, after) = document.split_once(&format!("{ATTRIBUTE}=\""))?;
    let (ms, files) = after.split_once('"')?.0.split_once(' ')?;
    let ms: f64 = ms.parse().ok()?;
    (files.parse() == Ok(file_count()) && ms > 0.0).then_some(ms)
}

fn document() -> String {
    let files = |suffix: &str| {
        let part = PARTS.iter().find(|it| it.suffix == suffix);
        0..part.map_or(0, |it| it.count)
    };
    let styles = files("css").map(|it| format!("<link rel=\"stylesheet\" href=\"{it}.css\">\n"));
    let scripts = files("js").map(|it| format!("<script src=\"{it}.js\" defer></script>\n"));
    let pictures = files("gif").map(|it| format!("<img src=\"{it}.gif\" alt=\"\">\n"));
    let head: String = styles.chain(scripts).collect();
    let body: String = pictures.collect();
    let page = format!(
        "<!doctype html><html><head><meta charset=\"utf-8\"><title>A page</title>
<link rel=\"icon\" href=\"data:,\">
<script>addEventListener(\"load\", () => {{
  const [page] = performance.getEntriesByType(\"navigation\");
  const files = performance.getEntriesByType(\"resource\").filter(it => it.responseStatus === 200);
  document.documentElement.setAttribute(\"{ATTRIBUTE}\", page.loadEventStart + \" \" + files.length);
}});</script>
{head}</head><body>
{body}"
    );
    const END: &str = "</body></html>\n";
    let rest = DOCUMENT_BYTES.saturating_sub(page.len() + END.len());
    page + &filler("<!--", rest, "-->") + END
}

fn content(suffix: &str, bytes: usize) -> Vec<u8> {
    match suffix {
        "gif" => {
            let mut picture = PICTURE.to_vec();
            picture.resize(bytes, 0);
            picture
        }
        // Nothing that takes time to run.
        _ => filler("/*", bytes, "*/").into_bytes(),
    }
}

/// A comment of so many bytes.
fn filler(begin: &str, bytes: usize, end: &str) -> String {
    let rest = bytes.saturating_sub(begin.len() + end.len());
    format!("{begin}{}{end}", "x".repeat(rest))
}

/// Sizes of a part's files, the largest first, each in proportion to its rank's inverse: a few large and many small ones.
fn sizes(part: &Part) -> impl Iterator<Item = usize> {
    let all: f64 = (1..=part.count).map(|rank| 1.0 / rank as f64).sum();
    let each = part.bytes as f64 / all;
    (1..=part.count).map(move |rank| (each / rank as f64).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_as_large_as_it_says() {
        let root = tempfile::tempdir().expect("a directory");
        write(root.path()).expect("it is written");
        let files = fs::read_dir(root.path().join(PLACE)).expect("it is there");
        let sizes: Vec<u64> = files
            .map(|it| it.expect("a file").metadata().expect("its size").len())
            .collect();
        assert_eq!(sizes.len(), file_count() + 1);
        let (all, stated) = (sizes.iter().sum::<u64>(), page_bytes() as u64);
        // Each is rounded to a byte.
        assert!(all.abs_diff(stated) <= file_count() as u64, "{all}");
        assert_eq!(document().len(), DOCUMENT_BYTES);
        for part in &PARTS {
            let named = document().matches(&format!(".{}\"", part.suffix)).count();
            assert_eq!(named, part.count, "{}", part.suffix);
        }
    }

    #[test]
    fn page_counts_once_all_of_its_files_have_come() {
        let page =
            |files: usize| format!("<html {ATTRIBUTE}=\"321.5 {files}\"><head></head></html>");
        assert_eq!(load_ms(&page(file_count())), Some(321.5));
        assert_eq!(load_ms(&page(file_count() - 1)), None);
        assert_eq!(load_ms("<html><head></head></html>"), None);
        assert_eq!(
            load_ms(&format!("<html {ATTRIBUTE}=\"0 {}\">", file_count())),
            None
        );
    }
}
