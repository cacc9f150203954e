//! A place that a request may be sent to, as its target and its Host field name it.

use std::fmt::Write as _;

use hyper::Uri;

use super::authority::Host;
use super::decide::Grant;
use super::door::Door;

/// A place that a request may be sent to.
pub(crate) struct Origin {
    pub(crate) grant: Grant,
    /// The host as the request names it; none for HTTP/1.0 requests without a Host field.
    pub(crate) host: Option<Host>,
    pub(crate) door: Door,
    /// Over TLS.
    pub(crate) secure: bool,
}

impl Origin {
    /// The host and port as a Host field has them.
    pub(crate) fn authority(&self) -> String {
        let mut text = String::new();
        self.write_authority(&mut text);
        text
    }

    fn write_authority(&self, out: &mut String) {
        let destination = self.grant.destination;
        let _ = match &self.host {
            Some(host) => write!(out, "{host}"),
            None => write!(out, "{}", Host::Address(destination.ip())),
        };
        if !matches!((destination.port(), self.secure), (80, false) | (443, true)) {
            let _ = write!(out, ":{}", destination.port());
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// The whole URL for the record.
    pub(crate) fn url(&self, uri: &Uri) -> String {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut url = String::with_capacity(path.len() + 64);
        url.push_str(self.scheme());
        url.push_str("://");
        self.write_authority(&mut url);
        url.push_str(path);
        url
    }
}
