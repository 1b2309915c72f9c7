// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two text formats, and which of them a client gets.
//!
//! The metrics are rendered in OpenMetrics. Prometheus' older text format 0.0.4, which all tools read, differs in a few lines:
//! the name of a counter in HELP and TYPE has `_total` too, an info is a gauge, and units and the end are not marked.
//!
//! Why not render each by itself: one list of metrics stays one list.

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    /// Version 0.0.4.
    Text,
}

impl Format {
    /// The one that a request accepts: OpenMetrics if it is named and no less wanted than text.
    pub(super) fn accepted(head: &str) -> Self {
        let accept = head.lines().filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("accept").then_some(value)
        });
        let (mut open, mut text) = (0.0_f64, 0.0_f64);
        for range in accept.flat_map(|value| value.split(',')) {
            let mut words = range.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default().to_ascii_lowercase();
            let quality = words.find_map(|word| word.strip_prefix("q="));
            let quality: f64 = quality.map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match kind.as_str() {
                "application/openmetrics-text" => open = quality.max(open),
                "text/plain" => text = quality.max(text),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// The content type.
    pub(super) fn content(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A text of OpenMetrics in this format.
    pub(super) fn of(self, open: &str) -> String {
        match self {
            Self::OpenMetrics => open.to_owned(),
            Self::Text => older(open),
        }
    }
}

fn older(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut help = None;
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), rest) => help = Some((name, rest)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (end, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                if let Some((_, rest)) = help.take().filter(|(of, _)| *of == name) {
                    text += &format!("# HELP {name}{end} {}\n", rest.unwrap_or_default());
                }
                text += &format!("# TYPE {name}{end} {kind}\n");
            }
            (Some("#"), ..) => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_prefers() {
        let get =
            |accept: &str| Format::accepted(&format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n"));
        let prometheus = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(get(prometheus), Format::OpenMetrics);
        assert_eq!(get("accept: application/openmetrics-text"), Format::OpenMetrics);
        for text in [
            "Host: x",
            "Accept: */*",
            "Accept: text/plain",
            "Accept: text/plain;q=0.9, application/openmetrics-text;q=0.5",
            "Accept: application/openmetrics-text;q=0",
            "Accept: application/openmetrics-text;q=high",
        ] {
            assert_eq!(get(text), Format::Text, "{text}");
        }
    }

    #[test]
    fn the_older_text_names_counters_and_infos_in_full() {
        let open = "# HELP a Build\n# TYPE a info\na_info{v=\"1\"} 1\n# HELP b_seconds Time\n# TYPE b_seconds counter\n# UNIT b_seconds seconds\nb_seconds_total 2\n# HELP c A # b\n# TYPE c gauge\nc 3\n# EOF\n";
        let text = "# HELP a_info Build\n# TYPE a_info gauge\na_info{v=\"1\"} 1\n# HELP b_seconds_total Time\n# TYPE b_seconds_total counter\nb_seconds_total 2\n# HELP c A # b\n# TYPE c gauge\nc 3\n";
        assert_eq!(Format::Text.of(open), text);
        assert_eq!(Format::OpenMetrics.of(open), open);
    }
}
