// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is shipped for Prometheus and Grafana: alerts have tests and advice, no expression uses a metric that is not documented, and a
//! Prometheus that scrapes a served volume can evaluate all of them.
#![allow(clippy::unwrap_used)] // a test stops at the first failure

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use larder_testkit::command::{PATIENCE, built, one_json, tool};
use larder_testkit::load::eventually;
use larder_testkit::place::Place;
use larder_testkit::server::Server;
use serde_json::Value;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/prometheus");
const RULES: &str = include_str!("../../../../dist/prometheus/larder.rules.yml");
const TESTS: &str = include_str!("../../../../dist/prometheus/larder.rules.test.yml");
const DASHBOARD: &str = include_str!("../../../../dist/prometheus/grafana-dashboard.json");
const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// The values of a key in lines of YAML.
fn values<'a>(text: &'a str, key: &str) -> BTreeSet<&'a str> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).collect()
}

/// The first cells of tables that have one name each.
fn documented() -> BTreeSet<&'static str> {
    DOCUMENT
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|row| row.0)
        .collect()
}

/// The expressions of the dashboard, with all that its variables may select.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let fill = |text: &str| {
        text.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$volume", ".*")
    };
    targets.map(|target| fill(target["expr"].as_str().unwrap())).collect()
}

#[test]
fn every_metric_in_use_is_documented() {
    let known = documented();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let used: Vec<String> = expressions().into_iter().chain([RULES.to_owned()]).collect();
    let words = used.iter().flat_map(|text| text.split(|c| !is_word(c)));
    let metrics = words.filter(|word| word.starts_with("larder_") || word.starts_with("process_"));
    for metric in metrics {
        let ends = ["_total", "_bucket", "_info"];
        let name = ends.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
        assert!(known.contains(name), "{metric}");
    }
}

#[test]
fn every_alert_has_advice_and_a_test_that_raises_it() {
    let alerts = values(RULES, "alert");
    let advised = documented().into_iter().filter(|name| name.starts_with("Larder"));
    assert_eq!(alerts, advised.collect());
    let mut raised = BTreeSet::new();
    for check in TESTS.split("- eval_time").skip(1).filter(|check| check.contains("exp_labels")) {
        raised.append(&mut values(check, "alertname"));
    }
    assert_eq!(alerts, raised);
}

#[test]
fn rules_pass_their_tests() {
    let Some(promtool) = built("promtool") else { return };
    let promtool = promtool.to_str().unwrap();
    for (command, file) in [("check", "larder.rules.yml"), ("test", "larder.rules.test.yml")] {
        let ended = tool(&[promtool, command, "rules", &format!("{SHIPPED}/{file}")]);
        assert!(ended.code == 0, "{}{}", ended.out, ended.err);
    }
}

/// A Prometheus that scrapes one address every second.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    fn start(program: PathBuf, place: &Place, target: &str) -> Self {
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{SHIPPED}/larder.rules.yml]\n\
             scrape_configs: [{{ job_name: larder, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
        );
        std::fs::write(place.path("prometheus.yml"), config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .arg(format!("--config.file={}", place.word("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", place.word("tsdb")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stderr(Stdio::null())
            .spawn();
        Self { child: child.unwrap(), port }
    }

    /// The answer to a request of its API; null while it does not listen.
    fn ask(&self, path: &str) -> Value {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else {
            return Value::Null;
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        // Before it is ready it answers with text.
        if body.starts_with('{') { one_json(body) } else { Value::Null }
    }

    fn query(&self, expression: &str) -> Value {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        self.ask(&format!("query?query={encoded}"))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_a_volume_and_evaluates_everything() {
    let Some(program) = built("prometheus") else { return };
    let place = Place::new();
    let more = ["--origin", "mem:8MiB", "--flash", "mem:4MiB", "--name", "db"];
    let mut words = place.serve(&more);
    words.extend(["--metrics".to_owned(), "127.0.0.1:0".to_owned()]);
    let server = Server::start(&words);
    let log = server.log();
    let at = log.lines().find_map(|line| line.strip_prefix("larder: metrics at http://"));
    let target = at.unwrap().strip_suffix("/metrics").unwrap();
    let prometheus = Prometheus::start(program, &place, target);
    eventually("it is scraped", || {
        let up = prometheus.query("larder_up");
        up["data"]["result"][0]["metric"]["volume"] == "db"
            && up["data"]["result"][0]["value"][1] == "1"
    });
    for expression in expressions() {
        let answer = prometheus.query(&expression);
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
    }
    let rules = || prometheus.ask("rules")["data"]["groups"][0]["rules"].clone();
    eventually("all rules are evaluated", || {
        let rules = rules();
        let rules = rules.as_array().unwrap();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    });
    let firing: Vec<Value> = rules().as_array().unwrap().to_vec();
    let firing: Vec<&Value> = firing.iter().filter(|rule| rule["state"] != "inactive").collect();
    assert!(firing.is_empty(), "{firing:?}");
    drop(prometheus);
    server.stop();
}
