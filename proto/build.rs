//! Generates the service from its `.proto` file; protox compiles it, so no protoc is needed.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const STATUS: &str = "sluice/status/v1/status.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={STATUS}");
    let mut descriptors = protox::compile([STATUS], ["."])?;
    tonic_prost_build::configure()
        .codec_path("crate::codec::LeanCodec")
        .build_transport(false)
        .compile_fds(descriptors.clone())?;
    // Comments are in the .proto file; those who read descriptors have no use for them.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.binpb"), descriptors.encode_to_vec())?;
    Ok(())
}
