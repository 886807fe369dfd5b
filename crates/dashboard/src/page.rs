//! The files of the page, embedded as they are and compressed.

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;

/// A file of the page.
#[derive(Debug)]
pub(crate) struct File {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    etag: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// The bytes of all files as browsers fetch them.
pub fn page_weight() -> usize {
    FILES.iter().map(|file| file.gzip.len()).sum()
}

/// The file of a path, if there is one.
pub(crate) fn find(path: &str) -> Option<&'static File> {
    let name = path.trim_start_matches('/');
    let name = if name.is_empty() { "index.html" } else { name };
    FILES.iter().find(|file| file.name == name)
}

impl File {
    fn media_type(&self) -> &'static str {
        match self.name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }

    /// The answer to a request with these headers.
    pub(crate) fn answer(&self, asked: &HeaderMap) -> Response {
        let has = |name: header::HeaderName, word: &str| {
            asked.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(word))
        };
        let answer = Response::builder()
            .header(header::ETAG, self.etag)
            .header(header::CACHE_CONTROL, "no-cache")
            .header(header::VARY, "accept-encoding");
        let unchanged = has(header::IF_NONE_MATCH, self.etag);
        let answer = if unchanged {
            answer.status(StatusCode::NOT_MODIFIED).body(Body::empty())
        } else if has(header::ACCEPT_ENCODING, "gzip") {
            let answer = answer.header(header::CONTENT_ENCODING, "gzip");
            answer.header(header::CONTENT_TYPE, self.media_type()).body(Body::from(self.gzip))
        } else {
            answer.header(header::CONTENT_TYPE, self.media_type()).body(Body::from(self.plain))
        };
        answer.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_light() {
        assert!(page_weight() < 300_000, "{} bytes", page_weight());
        assert!(find("/").is_some() && find("/app.js").is_some() && find("/../Cargo.toml").is_none());
    }

    /// The content security policy forbids all of these; found here, not in a browser.
    #[test]
    fn the_page_has_no_inline_script_or_style() {
        for file in FILES.iter().filter(|file| file.name.ends_with(".html")) {
            let text = String::from_utf8_lossy(file.plain).to_lowercase();
            for forbidden in ["style=", "<style", "onclick", "onload", "javascript:", "http://", "https://"] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.name);
            }
        }
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            let text = String::from_utf8_lossy(file.plain);
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.name);
            }
        }
    }
}
