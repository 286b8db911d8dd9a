//! Chromium, driven through ChromeDriver (W3C WebDriver), for tests of pages.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::places;

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pictures are no higher than this.
const MAX_PIXELS: u64 = 8_000;

/// A running browser with one window. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    _profile: tempfile::TempDir,
}

/// Whether a page is to be light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Scheme {
    /// Its name in CSS.
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

impl Browser {
    /// Why there is none here; `None` where there is one.
    pub fn obstacle() -> Option<&'static str> {
        let is_there = |name: &str| Path::new("/usr/bin").join(name).exists();
        (!is_there("chromium") || !is_there("chromedriver")).then_some("this machine has no Chromium")
    }

    /// Starts one.
    pub fn start() -> Result<Self> {
        let mut driver = Command::new("/usr/bin/chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start chromedriver")?;
        let output = BufReader::new(driver.stdout.take().context("chromedriver has no standard output")?);
        let port = output.lines().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        let port = port.context("chromedriver says no port")?;
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
        let profile = tempfile::tempdir().context("no folder for the browser's profile")?;
        let mut browser = Self {
            driver,
            agent: config.build().into(),
            session: format!("http://127.0.0.1:{port}/session"),
            _profile: profile,
        };
        let folder = format!("--user-data-dir={}", browser._profile.path().display());
        // Without a sandbox, as tests run as root; and without a word to anybody outside.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &folder,
        ];
        let options = json!({ "binary": "/usr/bin/chromium", "args": arguments });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.post("", &wanted)?;
        let id = session["sessionId"].as_str().with_context(|| format!("no session: {session}"))?;
        browser.session = format!("{}/{id}", browser.session);
        Ok(browser)
    }

    /// Opens a file.
    pub fn open(&self, path: &Path) -> Result<()> {
        self.visit(&format!("file://{}", path.display()))
    }

    /// Opens what is at an address.
    pub fn visit(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({ "url": url })).map(drop)
    }

    /// Makes the window so large, and the page light or dark.
    pub fn show(&self, width: u32, height: u32, scheme: Scheme) -> Result<()> {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", &size)?;
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme.name() });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] })).map(drop)
    }

    /// Runs a script's body, and returns what it does.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// A command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Result<Value> {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Keeps a picture of the page, or its beginning where it is long, under target/screenshots, for people.
    pub fn keep_picture(&self, name: &str) -> Result<()> {
        let size = self.run("return [innerWidth, document.documentElement.scrollHeight]")?;
        let height = size[1].as_u64().unwrap_or(0).min(MAX_PIXELS);
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        self.keep(name, &self.devtools("Page.captureScreenshot", &whole)?["data"])
    }

    /// Keeps the page as it prints, as PDF.
    pub fn keep_print(&self, name: &str) -> Result<()> {
        self.keep(name, &self.post("/print", &json!({}))?)
    }

    fn keep(&self, name: &str, data: &Value) -> Result<()> {
        let folder = places::target().join("screenshots");
        std::fs::create_dir_all(&folder)?;
        let bytes = decoded(data.as_str().context("no data")?).context("not base64")?;
        if bytes.len() < 1_000 {
            bail!("{name} is empty");
        }
        std::fs::write(folder.join(name), bytes).with_context(|| format!("cannot write {name}"))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let url = format!("{}{path}", self.session);
        let answer = self.agent.post(&url).content_type("application/json").send(body.to_string().as_bytes());
        let text = answer.with_context(|| format!("no answer to {path}"))?;
        let text = text.into_body().into_with_config().limit(64 << 20).read_to_string()?;
        let mut answer: Value = serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))?;
        let value = answer["value"].take();
        if value["error"].is_string() {
            bail!("{path}: {value}");
        }
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Base64 (RFC 4648), without line breaks.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Option<Vec<u8>> = text.trim_end_matches('=').bytes().map(digit).collect();
    let mut bytes = Vec::new();
    for part in digits?.chunks(4) {
        let bits = part.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit));
        let bits = bits << (6 * (4 - part.len()));
        bytes.extend(bits.to_be_bytes().iter().skip(1).take(part.len() - 1));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read() {
        assert_eq!(decoded("SGVsbG8=").as_deref(), Some(&b"Hello"[..]));
        assert_eq!(decoded("SGVsbG8h").as_deref(), Some(&b"Hello!"[..]));
        assert_eq!(decoded("a b"), None);
    }
}
