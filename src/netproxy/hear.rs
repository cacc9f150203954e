//! What a client says before anything is dialled for it. Where that could be refused, or served by a connection that
//! is there, it is heard first; where it is silent for a moment, the server may be the one to speak first.

use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::decide::Grant;
use super::egress::Egress;
use super::flow::{Door, Flow};
use super::http::{self, Beneath, Scope};
use super::intercept::{self, Leg, Reading};
use super::link::Wire;
use super::plain::Plain;
use super::sniff::{Glance, Server, Speech, classify, listen};
use super::stream::{check_hello, give_up};
use super::{moments, unread};

/// How long the first bytes of a client are waited for.
const FIRST_BYTES: Duration = Duration::from_millis(200);

/// What came of it.
pub(crate) enum Heard {
    /// The stream has been served, or refused.
    Served,
    /// Bytes that nobody reads, and that may pass there.
    Admitted(Client, Grant),
    /// It is to be dialled for.
    Unclear(Client),
}

/// Hears a client where that is worth it. `others` are further addresses of the same host.
pub(crate) async fn hear(
    egress: &Arc<Egress>,
    mut client: Client,
    (grant, others): (&Grant, &[Grant]),
    door: Door,
    flow: &Arc<Flow>,
) -> Heard {
    if !is_worth_it(egress, grant, others) {
        return Heard::Unclear(client);
    }
    let first = moments::within(FIRST_BYTES, client.read_ahead()).await;
    if !matches!(first, Some(Ok(1..))) {
        return Heard::Unclear(client);
    }
    match classify(client.prefix()) {
        Glance::Clear(Speech::Tls) => Box::pin(hear_tls(egress, client, grant, door, flow)).await,
        Glance::Clear(Speech::Opaque) => match unread::admit(egress, grant, client.proc.as_deref()) {
            Ok(()) => Heard::Admitted(client, grant.clone()),
            Err(error) => {
                give_up(egress, client, Some(flow), grant, &error);
                Heard::Served
            }
        },
        Glance::Clear(Speech::Http | Speech::Http2) | Glance::Request => {
            match listen(&mut client, Server::None).await.map(Speech::wire) {
                Ok(Some(wire)) => {
                    let plain = Plain::waiting(flow, others.to_vec());
                    answer(egress, client, grant, door, (plain, wire)).await;
                    Heard::Served
                }
                Ok(None) => Heard::Unclear(client),
                Err(error) => {
                    give_up(egress, client, Some(flow), grant, &error);
                    Heard::Served
                }
            }
        }
        Glance::Nothing | Glance::Text => Heard::Unclear(client),
    }
}

/// In a replay nothing is dialled anyway, and each stream is played from its own record.
fn is_worth_it(egress: &Egress, grant: &Grant, others: &[Grant]) -> bool {
    let is_known = |grant: &Grant| egress.pool.knows(grant.destination);
    egress.played().is_none() && (decides(egress, grant) || is_known(grant) || others.iter().any(is_known))
}

/// Whether what a client says decides whether it may pass.
pub(crate) fn decides(egress: &Egress, grant: &Grant) -> bool {
    egress.secrets.any() || egress.judge.may_refuse(grant)
}

/// Serves requests; the first that may go somewhere is dialled for.
async fn answer(
    egress: &Arc<Egress>,
    mut client: Client,
    grant: &Grant,
    door: Door,
    (plain, wire): (Plain, Wire),
) {
    plain.flow().set_protocol("http");
    client.count_for(plain.flow());
    let beneath = Beneath::Plain(Box::new(plain));
    let scope = Scope::Bound { grant: grant.clone(), door, beneath };
    Box::pin(http::serve(Arc::clone(egress), client, scope, None, wire)).await;
}

/// Judges whom the client asks for, and serves it by a connection that an earlier one has left, if there is one.
async fn hear_tls(
    egress: &Arc<Egress>,
    mut client: Client,
    grant: &Grant,
    door: Door,
    flow: &Arc<Flow>,
) -> Heard {
    let (hello, grant) = match check_hello(egress, &mut client, Some(flow), grant).await {
        Ok(checked) => checked,
        Err(error) => {
            flow.set_protocol("tls");
            give_up(egress, client, Some(flow), grant, &error);
            return Heard::Served;
        }
    };
    let Some(tls) = egress.reads(&grant) else {
        return match unread::admit(egress, &grant, client.proc.as_deref()) {
            Ok(()) => {
                flow.set_protocol("tls");
                Heard::Admitted(client, grant)
            }
            Err(error) => {
                give_up(egress, client, Some(flow), &grant, &error);
                Heard::Served
            }
        };
    };
    let leg = match intercept::kept(egress, &hello, &grant) {
        Some(link) => Leg::Kept(link),
        None if egress.enforce && egress.judge.is_used_up(&grant) => Leg::Waits,
        None => return Heard::Unclear(client),
    };
    let reading = Reading { client, hello, grant, door, flow: Some(Arc::clone(flow)) };
    Box::pin(intercept::serve(Arc::clone(egress), tls, reading, leg)).await;
    Heard::Served
}
