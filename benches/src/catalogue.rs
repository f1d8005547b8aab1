//! Releases and OSImages of a large catalogue.

use std::sync::Arc;

use serde_json::json;
use sluice_core::cache::stores::{Images, Releases};
use sluice_crds::run::OSImage;

/// Returns 20 minor versions of 15 releases, each with ten images of its own.
///
/// # Errors
/// An object cannot be decoded.
pub fn catalogue() -> serde_json::Result<(Releases, Images)> {
    let (mut releases, mut images) = (Releases::new(), Images::new());
    for count in 0..300 {
        let kubernetes = format!("v1.{}.{}+vmware.1", 20 + count / 15, count % 15);
        let name = format!("{}-tkg.1", kubernetes.replace('+', "---"));
        let mut named = Vec::new();
        for image in 0..10 {
            let name = format!("{name}-{image}");
            let object: OSImage = serde_json::from_value(json!({
                "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "OSImage", "metadata": {"name": name},
                "spec": {
                    "kubernetesVersion": kubernetes,
                    "os": {"type": "linux", "name": format!("os-{image}"), "version": "5", "arch": "amd64"},
                    "image": {"type": "ami", "ref": {"id": name, "region": "us-east-1"}},
                },
            }))?;
            images.insert(name.clone(), Arc::new(object));
            named.push(json!({"name": name}));
        }
        let release = serde_json::from_value(json!({
            "apiVersion": "run.tanzu.vmware.com/v1alpha3", "kind": "TanzuKubernetesRelease", "metadata": {"name": name},
            "spec": {
                "version": format!("{kubernetes}-tkg.1"), "kubernetes": {"version": kubernetes}, "osImages": named,
                "bootstrapPackages": [],
            },
        }))?;
        releases.insert(name, Arc::new(release));
    }
    Ok((releases, images))
}
