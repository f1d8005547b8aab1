//! Values of a KappControllerConfig.

use serde_json::{Value, json};
use sluice_crds::{
    foreign::Cluster,
    run::{KappConfig, KappControllerConfig, KappControllerConfigSpec, KappDeployment},
};

use super::{
    addresses::Ranges,
    cluster::{Proxies, given},
    kind::{Config, Provider},
    output::Output,
    problem::Problem,
    source::{Sources, ValuesError},
    zeros::without_zeros,
};

/// Index of the address of the DNS Service in the range of Services.
const DNS_ADDRESS: u8 = 10;
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

pub(super) struct KappController;

impl Provider for KappController {
    type Resource = KappControllerConfig;
    type Spec = KappControllerConfigSpec;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        _: &Sources,
    ) -> Result<Output, ValuesError> {
        let KappControllerConfigSpec {
            namespace,
            kapp_controller: own,
        } = config.spec;
        let mut values = without_zeros(json!({
            "namespace": namespace,
            "kappController": {
                "createNamespace": own.create_namespace,
                "globalNamespace": own.global_namespace,
                "deployment": deployment(&own.deployment, cluster)?,
                "config": settings(own.config.as_ref(), Proxies::of(cluster)),
            },
        }));
        // Runs next to its API server, and on the first node of the cluster.
        values["nodeSelector"] = json!({ CONTROL_PLANE: "" });
        Ok(Output::new("kapp-controller", values))
    }
}

fn deployment(own: &KappDeployment, cluster: &Cluster) -> Result<Value, Problem> {
    // On the host network kapp-controller cannot use the DNS of the node.
    let dns = if own.host_network {
        Ranges::of_services(cluster)?
            .address(cluster, DNS_ADDRESS)?
            .to_string()
    } else {
        String::new()
    };
    let mut tolerations = own.tolerations.clone();
    let tolerated = |toleration: &std::collections::BTreeMap<String, String>| {
        toleration.get("key").map(String::as_str) == Some(CONTROL_PLANE)
            && toleration.get("effect").map(String::as_str) == Some("NoSchedule")
    };
    if !tolerations.iter().any(tolerated) {
        let toleration = [("key", CONTROL_PLANE), ("effect", "NoSchedule")];
        tolerations.push(
            toleration
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
    }
    Ok(json!({
        "coreDNSIP": dns,
        "hostNetwork": own.host_network,
        "priorityClassName": own.priority_class_name,
        "concurrency": own.concurrency,
        "tolerations": tolerations,
        "apiPort": own.api_port,
        "metricsBindAddress": own.metrics_bind_address,
    }))
}

fn settings(own: Option<&KappConfig>, derived: Proxies) -> Value {
    let none = KappConfig::default();
    let own = own.unwrap_or(&none);
    let proxies = derived.under(&own.proxies);
    json!({
        "caCerts": given(own.ca_certs.as_ref(), &proxies.ca_certs),
        "httpProxy": proxies.http,
        "httpsProxy": proxies.https,
        "noProxy": proxies.no,
        "dangerousSkipTLSVerify": given(own.dangerous_skip_tls_verify.as_ref(), &proxies.skip_tls_verify),
    })
}
