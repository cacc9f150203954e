//! Host Unix sockets: bytes alone pass. Descriptors that a peer sends are dropped by the kernel,
//! since nothing here ever asks for them (man 7 unix).

use std::path::Path;
use std::sync::Arc;

use serde_json::Map;
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::decide::Refusal;
use super::egress::Egress;
use super::flow::{Door, Flow};
use super::relay::relay;
use crate::policy::Verdict;
use crate::trace::path_value;

/// Carries one stream between a listener inside and the host's socket at `path`.
pub(crate) async fn carry(
    egress: Arc<Egress>,
    path: Arc<Path>,
    mut client: UnixStream,
    _place: OwnedSemaphorePermit,
) {
    let rule = match egress.judge.unix(&path) {
        Verdict::Allow { rule } => egress.judge.label(rule),
        Verdict::Deny { rule, reason } => {
            let refusal = Refusal {
                target: format!("unix:{}", path.display()),
                name: None,
                address: None,
                port: None,
                reason,
                rule: rule.map(|rule| egress.judge.label(rule)),
                remedy: None,
            };
            if egress.refuse(&refusal, None).is_err() || egress.enforce {
                return;
            }
            "--observe".to_owned()
        }
    };
    let mut args = Map::new();
    args.extend(path_value("path", path.as_os_str().as_encoded_bytes()));
    let Ok(flow) = Flow::begin(&egress, args, &rule, Door::Unix, None) else { return };
    match UnixStream::connect(&path).await {
        Err(error) => flow.set_end(&format!("cannot connect: {error}")),
        Ok(upstream) => {
            let end = relay(&mut client, &mut flow.meter(upstream)).await;
            flow.set_end(&end.reason());
        }
    }
}
