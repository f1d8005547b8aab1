//! Values of an AntreaConfig.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use semver::Version;
use serde_json::{Value, json};
use sluice_crds::{
    cni::{AntreaConfig, AntreaConfigSpec, AntreaSettings, FeatureGates},
    foreign::Cluster,
    labels::label,
};

use super::{
    addresses::Ranges,
    antrea_nsx,
    cluster::infrastructure_name,
    kind::{Config, Provider},
    output::Output,
    problem::{Problem, Reason},
    source::{Sources, ValuesError},
    zeros::without_zeros,
};
use crate::text::one_line;

/// First version of each of the two later sets of settings.
const SINCE_1_7_1: Version = Version::new(1, 7, 1);
const SINCE_1_9_0: Version = Version::new(1, 9, 0);

/// Longest name of a feature gate in a message.
const LONGEST_GATE: usize = 64;

pub(super) struct Antrea;

impl Provider for Antrea {
    type Resource = AntreaConfig;
    type Spec = AntreaConfigSpec;
    const STATUS_MESSAGE: bool = true;

    fn values(
        config: &Config<'_, Self::Spec>,
        cluster: &Cluster,
        sources: &Sources,
    ) -> Result<Output, ValuesError> {
        let version = version(config)?;
        let own = config
            .spec
            .antrea
            .as_ref()
            .and_then(|antrea| antrea.config.as_ref());
        let services = Ranges::of_services(cluster)?;
        let mut settings = own.map_or_else(|| json!({}), |own| settings(own, &version));
        settings["serviceCIDR"] = json!(services.v4());
        settings["serviceCIDRv6"] = json!(services.v6());
        let mut settings = without_zeros(settings);
        settings["disableUdpTunnelOffload"] = json!(own.is_some_and(|own| own.disable_udp_tunnel_offload));
        let gates = own.and_then(|own| own.feature_gates.clone());
        let gates = gates.unwrap_or(FeatureGates::none());
        check_unlisted(&gates, config)?;
        settings["featureGates"] = feature_gates(&gates, &version);

        let mut output = Output::new(
            "antrea",
            json!({"infraProvider": infrastructure_name(cluster)?, "antrea": {"config": settings}}),
        );
        if let Some(nsx) = config.spec.antrea_nsx.as_ref().filter(|nsx| nsx.enable) {
            antrea_nsx::add(&mut output, nsx, config, cluster, sources)?;
        }
        Ok(output)
    }
}

/// Parses the version of Antrea from the label that names the Package: `1.7.1` of
/// `antrea.tanzu.vmware.com.1.7.1---vmware.1-tkg.1`.
fn version(config: &Config<'_, AntreaConfigSpec>) -> Result<Version, Problem> {
    let package = config.labels.get(label::PACKAGE_NAME).map_or("", String::as_str);
    // Each part of a package name begins with a letter; the version begins with the first digit after a dot.
    let digits = package.match_indices('.').map(|(at, _)| &package[at + 1..]);
    let number = digits
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        .map(|rest| rest.split("---").next().unwrap_or(rest))
        .next();
    number
        .and_then(|number| Version::parse(number).ok())
        .ok_or_else(|| {
            let message = format!(
                "label {} of AntreaConfig {}/{} is {package:?}; it has to name the Package, as in \
             antrea.tanzu.vmware.com.1.9.0---vmware.1",
                label::PACKAGE_NAME,
                config.namespace,
                config.name
            );
            Problem::new(Reason::PackageLabelMissing, message)
        })
}

/// Converts to a string, because the package expects one.
fn text(number_or_text: &IntOrString) -> String {
    match number_or_text {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    }
}

/// The settings that this version supports, under their names in the configuration.
fn settings(own: &AntreaSettings, version: &Version) -> Value {
    let mut settings = json!({
        "egress": own.egress,
        "nodePortLocal": own.node_port_local,
        "antreaProxy": own.antrea_proxy,
        "flowExporter": own.flow_exporter,
        "kubeAPIServerOverride": own.kube_api_server_override,
        "transportInterface": own.transport_interface,
        "transportInterfaceCIDRs": own.transport_interface_cidrs,
        "multicastInterfaces": own.multicast_interfaces,
        "tunnelType": own.tunnel_type,
        "trafficEncryptionMode": own.traffic_encryption_mode,
        "enableUsageReporting": own.enable_usage_reporting,
        "wireGuard": own.wire_guard,
        "trafficEncapMode": own.traffic_encap_mode,
        "noSNAT": own.no_snat,
        "defaultMTU": text(&own.default_mtu),
        "tlsCipherSuites": own.tls_cipher_suites,
    });
    if *version >= SINCE_1_7_1 {
        settings["multicast"] = json!(own.multicast);
        settings["multicluster"] = json!(own.multicluster);
        settings["enableBridgingMode"] = json!(own.enable_bridging_mode);
        settings["disableTXChecksumOffload"] = json!(own.disable_tx_checksum_offload);
        settings["dnsServerOverride"] = json!(own.dns_server_override);
    }
    if *version >= SINCE_1_9_0 {
        settings["tunnelPort"] = json!(own.tunnel_port);
        settings["tunnelCsum"] = json!(own.tunnel_csum);
    }
    settings
}

/// Checks the gates that the definition does not list, whose types the API server does not validate.
fn check_unlisted(own: &FeatureGates, config: &Config<'_, AntreaConfigSpec>) -> Result<(), Problem> {
    let mut gates = own.unlisted.iter();
    let Some((gate, _)) = gates.find(|(_, on)| !on.is_boolean() && !on.is_null()) else {
        return Ok(());
    };
    let message = format!(
        "{} in spec.antrea.config.featureGates of AntreaConfig {}/{} is not a boolean; set it to true or false",
        one_line(gate, LONGEST_GATE),
        config.namespace,
        config.name
    );
    Err(Problem::new(Reason::FeatureGateInvalid, message))
}

/// All gates of the first set, because Antrea's default would apply to an omitted one. Later gates only if this version supports them
/// and they are on. Unlisted gates as they are; a null is an omitted one.
fn feature_gates(own: &FeatureGates, version: &Version) -> Value {
    let mut gates = json!(own);
    let is_given = |gate: &str, on: &Value| match gate {
        "Multicluster" | "SecondaryNetwork" | "TrafficControl" => *version >= SINCE_1_7_1 && *on == true,
        "TopologyAwareHints" => *version >= SINCE_1_9_0 && *on == true,
        _ => !on.is_null(),
    };
    if let Some(gates) = gates.as_object_mut() {
        gates.retain(|gate, on| is_given(gate, on));
    }
    gates
}
