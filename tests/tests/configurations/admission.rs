//! Validation by the definitions themselves.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use sluice_tests::requests::apply;

use crate::around::{patch, write};

const NAMESPACE: &str = "admission";

fn antrea(name: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "cni.tanzu.vmware.com/v1alpha1",
        "kind": "AntreaConfig",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            // No controller turns it into values.
            "annotations": {"tkg.tanzu.vmware.com/template-config": "true"},
        },
        "spec": {"antrea": {"config": config}, "antreaNsx": {"enable": false}},
    })
}

/// The rules that an admission webhook used to have.
pub(crate) async fn antrea_is_checked(client: &Client) -> Result<()> {
    apply::namespace(client, NAMESPACE).await?;
    let created = [
        (
            json!({"noSNAT": true}),
            "spec.antrea.config.noSNAT",
            "field must be disabled for encap and hybrid mode",
        ),
        (
            json!({"noSNAT": true, "trafficEncapMode": "hybrid"}),
            "spec.antrea.config.noSNAT",
            "field must be disabled for encap and hybrid mode",
        ),
        (
            json!({"featureGates": {"AntreaProxy": false, "EndpointSlice": true}}),
            "spec.antrea.config.featureGates.EndpointSlice",
            "field cannot be enabled if AntreaProxy is disabled",
        ),
        (
            json!({"trafficEncapMode": "tunnel"}),
            "spec.antrea.config.trafficEncapMode",
            "Unsupported value",
        ),
        (
            json!({"defaultMTU": -1}),
            "spec.antrea.config.defaultMTU",
            "greater than or equal to 0",
        ),
        (
            json!({"defaultMTU": true}),
            "spec.antrea.config.defaultMTU",
            "must be of type",
        ),
    ];
    for (config, field, message) in created {
        let outcome = write(client, &antrea("refused", &config)).await;
        is_refused(outcome.err(), field, message).with_context(|| format!("creation with {config}"))?;
    }

    let good = antrea(
        "good",
        &json!({"noSNAT": true, "trafficEncapMode": "noEncap", "featureGates": {"AntreaProxy": true}}),
    );
    write(client, &good).await?;
    let fixed = [
        ("noSNAT", json!({"antrea": {"config": {"noSNAT": false}}})),
        (
            "disableUdpTunnelOffload",
            json!({"antrea": {"config": {"disableUdpTunnelOffload": true}}}),
        ),
        (
            "tlsCipherSuites",
            json!({"antrea": {"config": {"tlsCipherSuites": "TLS_A"}}}),
        ),
        (
            "trafficEncapMode",
            json!({"antrea": {"config": {"trafficEncapMode": "networkPolicyOnly"}}}),
        ),
        ("enable", json!({"antreaNsx": {"enable": true}})),
    ];
    for (field, change) in fixed {
        let outcome = patch(client, &good, &json!({"spec": change})).await;
        is_refused(outcome.err(), field, "field is immutable")
            .with_context(|| format!("change of {field}"))?;
    }
    // Rules of a creation do not apply again, and everything else may change.
    let later = json!({"featureGates": {"AntreaProxy": false, "EndpointSlice": true}, "defaultMTU": "1400"});
    patch(client, &good, &json!({"spec": {"antrea": {"config": later}}})).await?;
    an_mtu_is_a_number_or_a_text(client, &good).await?;
    an_unlisted_gate_is_kept(client, &good).await?;
    an_absent_parent_counts_as_its_defaults(client).await
}

/// It comes back as it was written.
async fn an_mtu_is_a_number_or_a_text(client: &Client, config: &Value) -> Result<()> {
    for mtu in [json!(9000), json!("9000"), json!("")] {
        let change = json!({"spec": {"antrea": {"config": {"defaultMTU": mtu}}}});
        let found = patch(client, config, &change).await?;
        let found = &found.data["spec"]["antrea"]["config"]["defaultMTU"];
        ensure!(*found == mtu, "{mtu} was stored as {found}");
    }
    Ok(())
}

/// Beside the listed gates, which keep their types.
async fn an_unlisted_gate_is_kept(client: &Client, config: &Value) -> Result<()> {
    let gates = |gates: Value| json!({"spec": {"antrea": {"config": {"featureGates": gates}}}});
    let found = patch(client, config, &gates(json!({"BGPPolicy": true}))).await?;
    let found = &found.data["spec"]["antrea"]["config"]["featureGates"];
    ensure!(
        found["BGPPolicy"] == true && found["EndpointSlice"] == true,
        "stored as {found}"
    );
    let outcome = patch(client, config, &gates(json!({"EndpointSlice": "true"}))).await;
    is_refused(
        outcome.err(),
        "spec.antrea.config.featureGates.EndpointSlice",
        "must be of type",
    )
}

/// A configuration that says nothing yet takes its settings later, and gives them back; what differs from the defaults it does not.
async fn an_absent_parent_counts_as_its_defaults(client: &Client) -> Result<()> {
    let mut empty = antrea("empty", &Value::Null);
    empty["spec"] = json!({});
    write(client, &empty).await?;
    let fixed = [
        ("noSNAT", json!(true)),
        ("disableUdpTunnelOffload", json!(true)),
        ("tlsCipherSuites", json!("TLS_A")),
        ("trafficEncapMode", json!("noEncap")),
    ];
    for (field, value) in fixed {
        let change = json!({"spec": {"antrea": {"config": {field: value}}}});
        let outcome = patch(client, &empty, &change).await;
        is_refused(outcome.err(), field, "field is immutable").with_context(|| format!("first {field}"))?;
    }
    for spec in [
        json!({"antrea": {"config": {"defaultMTU": 9000}}, "antreaNsx": {}}),
        json!({"antrea": {"config": null}, "antreaNsx": null}),
        json!({"antrea": null}),
        json!({"antrea": {}}),
        json!({"antrea": {"config": {}}}),
    ] {
        let change = patch(client, &empty, &json!({"spec": spec})).await;
        change.with_context(|| format!("change to {spec}"))?;
    }
    Ok(())
}

fn is_refused(outcome: Option<anyhow::Error>, field: &str, message: &str) -> Result<()> {
    let error = format!("{:#}", outcome.context("it was let in")?);
    ensure!(
        error.contains(field) && error.contains(message),
        "refused for another reason: {error}"
    );
    Ok(())
}
