//! The gRPC status service of Sluice, generated from `sluice/status/v1/status.proto`.
//!
//! Server: implement [`status::v1::status_service_server::StatusService`]. Client:
//! [`status::v1::status_service_client::StatusServiceClient`].

/// The status service.
pub mod status {
    /// Version 1.
    // Generated: documented in the .proto file, linted nowhere.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("sluice.status.v1");
    }
}
