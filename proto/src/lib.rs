//! The gRPC status service of Sluice, generated from `sluice/status/v1/status.proto`.
//!
//! Server: implement [`status::v1::status_service_server::StatusService`]. Client:
//! [`status::v1::status_service_client::StatusServiceClient`].

pub mod codec;

/// The encoded `google.protobuf.FileDescriptorSet` of the service and of what it imports, without comments.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.binpb"));

/// The status service.
pub mod status {
    /// Version 1.
    // Generated: documented in the .proto file, linted nowhere.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("sluice.status.v1");
    }
}
