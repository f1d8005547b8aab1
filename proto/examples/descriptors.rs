//! Writes the descriptor of the service as it is now to `proto/released`. For a release only: `tests/released.rs` holds later changes
//! of the .proto file against it.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("released/status-v1.binpb");
    fs::write(path, sluice_proto::DESCRIPTORS)?;
    Ok(())
}
