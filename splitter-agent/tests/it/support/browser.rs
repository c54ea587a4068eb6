//! A headless Chromium, spoken to by the DevTools protocol over a pipe: no port, no library.

use std::cell::{Cell, RefCell};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// It starts within seconds, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) const PROGRAM: &str = flow_testbed::require::BROWSER;

/// A browser with one tab. Dropping it kills it.
pub(crate) struct Browser {
    child: Child,
    requests: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    events: RefCell<Vec<Value>>,
    last_id: Cell<u64>,
    session: String,
}

impl Browser {
    /// Starts it by `shell`, a command that runs `sh` where the browser is to be; its profile goes
    /// into `directory`.
    pub(crate) fn start(mut shell: Command, directory: &Path) -> Self {
        // The protocol is spoken over the descriptors 3 and 4.
        let script = "log=$1; shift; exec \"$@\" 3<&0 4>&1 </dev/null >\"$log\" 2>&1";
        let mut child = shell
            .args(["-c", script, "sh"])
            .arg(directory.join("browser-log"))
            .args([PROGRAM, "--remote-debugging-pipe", "--no-sandbox"])
            .args([
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .arg(format!(
                "--user-data-dir={}",
                directory.join("profile").display()
            ))
            .arg("about:blank")
            .env("HOME", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let requests = child.stdin.take().expect("it is piped");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in answers.split(0) {
                let Ok(message) = message else { return };
                let message = serde_json::from_slice(&message).expect("it speaks JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Self {
            child,
            requests: RefCell::new(requests),
            messages,
            events: RefCell::default(),
            last_id: Cell::new(0),
            session: String::new(),
        };
        browser.open_tab();
        browser
    }

    fn open_tab(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("Target.attachToTarget", attach);
        self.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Opens a page.
    pub(crate) fn open(&self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
    }

    /// What an expression comes to on the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", ask);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true on the page.
    pub(crate) fn wait_for(&self, expression: &str) {
        self.wait_while(expression, || ());
    }

    /// The same, and does something each time before it looks.
    pub(crate) fn wait_while(&self, expression: &str, mut each_time: impl FnMut()) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            each_time();
            if self.value(&format!("Boolean({expression})")) == json!(true) {
                return;
            }
            let text = || self.value("document.body ? document.body.innerText : ''");
            assert!(
                Instant::now() < deadline,
                "waited for {expression}: {}",
                text()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// As if the screen were so wide, and the reader liked it light or dark.
    pub(crate) fn emulate(&self, width: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": 1_000, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Writes what the page looks like, all of its length.
    pub(crate) fn screenshot(&self, path: &Path) {
        let ask = json!({ "format": "png", "captureBeyondViewport": true });
        let answer = self.call("Page.captureScreenshot", ask);
        let data = answer["data"].as_str().expect("a picture");
        let png = BASE64_STANDARD.decode(data).expect("it is base64");
        std::fs::write(path, png).expect("a file");
    }

    /// Errors and warnings that the browser reported so far, among them what the page's own policy
    /// forbade.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.value("1"); // whatever was reported before has been read then
        let events = self.events.borrow();
        let complaints = events.iter().filter(|event| {
            let level = event["params"]["entry"]["level"].as_str();
            let kind = event["params"]["type"].as_str();
            match event["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Log.entryAdded") => matches!(level, Some("error" | "warning")),
                Some("Runtime.consoleAPICalled") => matches!(kind, Some("error" | "warning")),
                _ => false,
            }
        });
        complaints.map(ToString::to_string).collect()
    }

    /// Whatever was asked for over the network so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        let events = self.events.borrow();
        let urls = events
            .iter()
            .filter(|event| event["method"] == "Network.requestWillBeSent")
            .filter_map(|event| event["params"]["request"]["url"].as_str());
        urls.map(str::to_owned).collect()
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let mut request = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests
            .borrow_mut()
            .write_all(&bytes)
            .expect("it reads");
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.borrow_mut().push(message);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
