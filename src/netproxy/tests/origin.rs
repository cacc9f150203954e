//! Origins that speak TLS: an authority of the test's own, and a server that tells back what it got.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use time::OffsetDateTime;
use tokio_rustls::TlsAcceptor;

/// An authority that the host does not know.
pub(super) struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// What an origin shows.
pub(super) struct Shown {
    pub(super) names: Vec<SanType>,
    pub(super) expired: bool,
    pub(super) protocols: &'static [&'static [u8]],
    /// It wants a certificate of the client's.
    pub(super) mutual: bool,
}

impl Shown {
    pub(super) fn name(name: &str) -> Self {
        let names = vec![SanType::DnsName(name.try_into().unwrap())];
        Self { names, expired: false, protocols: &[b"h2", b"http/1.1"], mutual: false }
    }

    pub(super) fn address(address: &str) -> Self {
        let address: IpAddr = address.parse().unwrap();
        Self { names: vec![SanType::IpAddress(address)], ..Self::name("unused.test") }
    }
}

impl TestAuthority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        // Two authorities of one name would be taken for each other.
        let name = format!("test authority {:?}", &key.public_key_raw()[1..9]);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Self { issuer }
    }

    pub(super) fn root(&self) -> CertificateDer<'static> {
        self.issuer.der().clone()
    }

    /// The server's side of its TLS.
    pub(super) fn config(&self, shown: &Shown) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names.clone_from(&shown.names);
        if shown.expired {
            params.not_before = OffsetDateTime::now_utc() - Duration::from_secs(20 * 86_400);
            params.not_after = OffsetDateTime::now_utc() - Duration::from_secs(10 * 86_400);
        }
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = if shown.mutual {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(self.root()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![leaf.der().clone()], key).unwrap();
        config.alpn_protocols = shown.protocols.iter().map(|one| one.to_vec()).collect();
        Arc::new(config)
    }

    /// The server's side of a certificate that is its own authority's, as `openssl req -x509` makes it; what it says that
    /// it is for.
    pub(super) fn self_signed(
        name: &str,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> (Arc<ServerConfig>, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = usages.to_vec();
        let own = params.self_signed(&key).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = builder.with_single_cert(vec![own.der().clone()], key).unwrap();
        (Arc::new(config), own.der().clone())
    }

    /// A server that tells back each request; `.1` counts its connections.
    pub(super) fn origin(&self, shown: &Shown) -> (SocketAddr, Arc<AtomicUsize>) {
        serve(self.config(shown))
    }
}

pub(super) fn serve(config: Arc<ServerConfig>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let acceptor = TlsAcceptor::from(config);
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                let accepting = acceptor.accept(stream);
                tokio::spawn(async move {
                    let Ok(stream) = accepting.await else { return };
                    let many = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let stream = TokioIo::new(stream);
                    // A client that goes away is no failure of the test.
                    let _ = if many {
                        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        builder.serve_connection(stream, service_fn(tell_back)).await
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        builder.serve_connection(stream, service_fn(tell_back)).await
                    };
                });
            }
        });
    });
    (address, connections)
}

type Told = UnsyncBoxBody<Bytes, Infallible>;

/// The same without TLS, in HTTP/2 without asking.
pub(super) fn plain_origin() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(tell_back)));
            }
        });
    });
    address
}

async fn tell_back(request: Request<Incoming>) -> Result<Response<Told>, Infallible> {
    let (head, body) = request.into_parts();
    let mut told = format!("{} {} {:?}\n", head.method, head.uri, head.version);
    for (name, value) in &head.headers {
        told.push_str(&format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())));
    }
    let collected = body.collect().await.unwrap_or_default();
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    let told = Full::new(Bytes::from([told.as_bytes(), &body].concat()));
    // As gRPC does: the status stands behind the body.
    let trailers = trailers.map(|mut trailers| {
        trailers.insert("grpc-status", "0".parse().unwrap());
        Ok(trailers)
    });
    let mut response = Response::new(told.with_trailers(async { trailers }).boxed_unsync());
    let headers = response.headers_mut();
    if let Some(credentials) = head.headers.get("authorization") {
        // What no proxy looks for.
        let turned: Vec<u8> = credentials.as_bytes().iter().rev().copied().collect();
        headers.insert("x-turned", turned.as_slice().try_into().unwrap());
        headers.insert("x-echo", credentials.clone());
    }
    headers.insert("strict-transport-security", "max-age=1".parse().unwrap());
    headers.insert("alt-svc", "h3=\":443\"; ma=86400, h2=\":8443\"".parse().unwrap());
    Ok(response)
}
