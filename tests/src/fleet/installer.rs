//! What kapp-controller v0.53.1 writes for a PackageInstall that it has deployed. It does not run in this bench.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::catalogue::template;
use super::kinds::APP;

/// Output lines of kapp for a deployment.
const SAID: usize = 30;

/// Whether kapp-controller still has to reconcile a PackageInstall.
pub(super) fn is_due(install: &Value) -> bool {
    install["status"]["observedGeneration"] != install["metadata"]["generation"]
}

/// The App of a PackageInstall, without its status.
pub(super) fn app(install: &Value) -> Value {
    let spec = &install["spec"];
    let (ref_name, version) = package(install);
    let mut of_app = template(ref_name, version);
    let values = &spec["values"][0]["secretRef"]["name"];
    of_app["template"][0]["ytt"]["valuesFrom"] = json!([{"secretRef": {"name": values}}]);
    for field in ["serviceAccountName", "cluster", "syncPeriod", "noopDelete"] {
        if !spec[field].is_null() {
            of_app[field] = spec[field].clone();
        }
    }
    json!({
        "apiVersion": APP.api_version(),
        "kind": "App",
        "metadata": {
            "name": install["metadata"]["name"],
            "namespace": install["metadata"]["namespace"],
            "annotations": {"packaging.carvel.dev/package-ref-name": ref_name, "packaging.carvel.dev/package-version": version},
            "ownerReferences": [{
                "apiVersion": "packaging.carvel.dev/v1alpha1",
                "kind": "PackageInstall",
                "name": install["metadata"]["name"],
                "uid": install["metadata"]["uid"],
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": of_app,
    })
}

/// Status of an App at this generation.
pub(super) fn app_status(install: &Value, generation: &Value) -> Value {
    let (ref_name, _) = package(install);
    let short = ref_name.split('.').next().unwrap_or_default();
    let now = now();
    let said: Vec<String> = (0..SAID)
        .map(|line| {
            format!("10:14:07AM: ok: reconcile deployment/{short}-{line} (apps/v1) namespace: kube-system")
        })
        .collect();
    json!({
        "conditions": [{"type": "ReconcileSucceeded", "status": "True"}],
        "consecutiveReconcileSuccesses": 1,
        "deploy": {
            "exitCode": 0, "finished": true, "startedAt": now, "updatedAt": now, "stdout": said.join("\n"),
            "kapp": {
                "associatedResources": {
                    "groupKinds": [{"group": "", "kind": "ConfigMap"}, {"group": "apps", "kind": "Deployment"}],
                    "label": "kapp.k14s.io/app=1795000000000000000",
                    "namespaces": ["kube-system"],
                },
            },
        },
        "fetch": {"exitCode": 0, "startedAt": now, "updatedAt": now, "stdout": "apiVersion: vendir.k14s.io/v1alpha1\ndirectories:\n- contents:\n  - imgpkgBundle:\n      image: registry.invalid/packages\n    path: .\n  path: \"0\"\nkind: LockConfig\n"},
        "friendlyDescription": "Reconcile succeeded",
        "inspect": {"exitCode": 0, "updatedAt": now, "stdout": said[..SAID / 3].join("\n")},
        "observedGeneration": generation,
        "template": {"exitCode": 0, "updatedAt": now},
    })
}

/// Status of a PackageInstall whose App has succeeded.
pub(super) fn install_status(install: &Value) -> Value {
    let (_, version) = package(install);
    json!({
        "conditions": [{"type": "ReconcileSucceeded", "status": "True"}],
        "friendlyDescription": "Reconcile succeeded",
        "lastAttemptedVersion": version,
        "observedGeneration": install["metadata"]["generation"],
        "version": version,
    })
}

fn package(install: &Value) -> (&str, &str) {
    let package = &install["spec"]["packageRef"];
    let constraints = &package["versionSelection"]["constraints"];
    (
        package["refName"].as_str().unwrap_or_default(),
        constraints.as_str().unwrap_or_default(),
    )
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_its_package_with_the_values_of_its_install() {
        let install = json!({
            "metadata": {"name": "one-antrea", "namespace": "tkg-system", "uid": "u", "generation": 2},
            "spec": {
                "serviceAccountName": "account",
                "packageRef": {"refName": "antrea.tanzu.vmware.com", "versionSelection": {"constraints": "1.9.0"}},
                "values": [{"secretRef": {"name": "values"}}],
            },
        });
        assert!(is_due(&install));
        let app = app(&install);
        assert_eq!(
            app["spec"]["template"][0]["ytt"]["valuesFrom"][0]["secretRef"]["name"],
            "values"
        );
        assert_eq!(app["spec"]["serviceAccountName"], "account");
        assert_eq!(
            app["metadata"]["annotations"]["packaging.carvel.dev/package-version"],
            "1.9.0"
        );
        let mut seen = install.clone();
        seen["status"] = install_status(&install);
        assert!(!is_due(&seen));
        assert_eq!(app_status(&install, &json!(3))["observedGeneration"], 3);
    }
}
