//! Generates the service from its `.proto` file; protox compiles it, so no protoc is needed.

use std::error::Error;

const STATUS: &str = "sluice/status/v1/status.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={STATUS}");
    tonic_prost_build::configure().compile_fds(protox::compile([STATUS], ["."])?)?;
    Ok(())
}
