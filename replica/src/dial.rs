//! Reaching another node.
//!
//! Each dial resolves the name anew, so a peer that moved is found. The peer is known by its
//! cluster and node id, never by its address.

use tidegate_proto::peer::v1 as pb;
use tidegate_proto::peer::v1::replication_client::ReplicationClient;
use tidegate_proto::{MESSAGE_BYTES_MAX, PROTOCOL_METADATA, PROTOCOL_VERSION};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use crate::error::{Error, Result};
use crate::settings::Settings;
use crate::wire::Description;

/// Bytes that one stream may have under way before the receiver must take some.
const STREAM_WINDOW: u32 = 4 << 20;
/// The same for a whole connection.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Connects to the peer address `url` (`http://host:9070`).
pub async fn dial(url: &str, settings: &Settings) -> Result<ReplicationClient<Channel>> {
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|e| Error::invalid("peer address", format!("{url} is not a URL: {e}")))?
        .connect_timeout(settings.dial_deadline)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(settings.ping_interval)
        .keep_alive_timeout(settings.ping_deadline)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let connected = tokio::time::timeout(settings.dial_deadline, endpoint.connect()).await;
    let channel = connected
        .map_err(|_| Error::network(format!("{url} did not answer in time")))?
        .map_err(|e| Error::network(format!("{url}: {}", deepest(&e))))?;
    Ok(ReplicationClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}

/// Asks the node at `url` what it is.
pub async fn describe(url: &str, asking: &str, settings: &Settings) -> Result<Description> {
    let mut client = dial(url, settings).await?;
    let request = request(pb::DescribeRequest {
        node_id: asking.to_owned(),
    });
    let reply = tokio::time::timeout(settings.dial_deadline, client.describe(request)).await;
    let reply = reply.map_err(|_| Error::network(format!("{url} did not answer in time")))??;
    Description::decode(reply.into_inner())
}

/// A request with the metadata that every call carries.
pub fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let version = PROTOCOL_VERSION.to_string();
    let version = version.parse().expect("a number is valid metadata");
    request.metadata_mut().insert(PROTOCOL_METADATA, version);
    request
}

/// The cause that says something: the outer errors only say that connecting failed.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
