//! What stands behind the body of a request in HTTP/2: fields there may name another method or path as well as those in
//! front of it, and nothing in front has to announce them.

use std::sync::Arc;

use http::{HeaderMap, Version, request};

use super::decide::Grant;
use super::disguise;
use super::egress::{Egress, RequestLine};
use super::error::NetproxyError;
use super::requests::{conditions_of, unclear};
use super::target::Origin;
use crate::policy::Conditions;

/// Looks at them where rules name methods or paths.
pub(crate) struct Trailers {
    egress: Arc<Egress>,
    conditions: Conditions,
    grant: Grant,
    method: String,
    url: String,
    proc: Option<String>,
}

impl Trailers {
    /// None where nothing that they say matters. HTTP/1 passes on none but those that the head announces.
    pub(crate) fn of(
        egress: &Arc<Egress>,
        head: &request::Parts,
        origins: &[Origin],
        proc: Option<&str>,
    ) -> Option<Box<Self>> {
        let origin = origins.first().filter(|origin| !origin.grant.observed)?;
        if head.version != Version::HTTP_2 {
            return None;
        }
        let conditions = conditions_of(egress, origins);
        (conditions.methods || conditions.paths).then(|| {
            Box::new(Self {
                egress: Arc::clone(egress),
                conditions,
                grant: origin.grant.clone(),
                method: head.method.as_str().to_owned(),
                url: origin.url(&head.uri),
                proc: proc.map(str::to_owned),
            })
        })
    }

    /// They must not go on after an error. A refusal is recorded here.
    pub(crate) fn admit(&self, fields: &HeaderMap) -> Result<(), NetproxyError> {
        let Some(reason) = disguise::in_trailers(fields, &self.conditions) else { return Ok(()) };
        let refusal = unclear(&self.grant, &reason);
        let line = RequestLine { method: &self.method, url: &self.url };
        self.egress.refuse_request(&refusal, line, self.proc.as_deref())?;
        match self.egress.enforce {
            true => Err(NetproxyError::Unclear(Box::new(refusal))),
            false => Ok(()),
        }
    }
}
