//! Address ranges of a Cluster.

use std::net::IpAddr;

use ipnet::IpNet;
use sluice_crds::foreign::{Cluster, cluster::NetworkRanges};

use super::{
    cluster::named,
    problem::{Problem, Reason},
};

/// At most two address ranges, usually one of each family, in the order of the Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Field of the Cluster that lists them: `services` or `pods`.
    field: &'static str,
    blocks: Vec<(String, IpNet)>,
}

impl Ranges {
    /// Returns the ranges of Services.
    pub(super) fn of_services(cluster: &Cluster) -> Result<Self, Problem> {
        let network = cluster.spec.cluster_network.as_ref();
        Self::read(
            cluster,
            "services",
            network.and_then(|network| network.services.as_ref()),
        )
    }

    /// Returns the ranges of Pods.
    pub(super) fn of_pods(cluster: &Cluster) -> Result<Self, Problem> {
        let network = cluster.spec.cluster_network.as_ref();
        Self::read(cluster, "pods", network.and_then(|network| network.pods.as_ref()))
    }

    fn read(cluster: &Cluster, field: &'static str, ranges: Option<&NetworkRanges>) -> Result<Self, Problem> {
        let path = || format!("spec.clusterNetwork.{field}.cidrBlocks of {}", named(cluster));
        let blocks = ranges
            .map(|ranges| ranges.cidr_blocks.as_slice())
            .unwrap_or_default();
        match blocks.len() {
            0 => {
                let message = format!("{} is empty; give one range, or one of each family", path());
                return Err(Problem::new(Reason::CIDRMissing, message));
            }
            1 | 2 => {}
            many => {
                let message = format!("{} has {many} ranges; give at most two", path());
                return Err(Problem::new(Reason::CIDRTooMany, message));
            }
        }
        let parse = |block: &String| {
            block
                .trim()
                .parse()
                .map(|range| (block.trim().to_owned(), range))
                .map_err(|_| {
                    let message = format!("{} has {block:?}, which is no range of addresses", path());
                    Problem::new(Reason::CIDRInvalid, message)
                })
        };
        let blocks = blocks.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { field, blocks })
    }

    /// Returns the ranges as written, comma separated.
    pub(super) fn joined(&self) -> String {
        self.join(|(text, _)| text)
    }

    /// Returns the families, comma separated: `ipv4`, `ipv4,ipv6`.
    pub(super) fn families(&self) -> String {
        self.join(|(_, range)| match range {
            IpNet::V4(_) => "ipv4",
            IpNet::V6(_) => "ipv6",
        })
    }

    fn join<'a>(&'a self, text: impl Fn(&'a (String, IpNet)) -> &'a str) -> String {
        self.blocks.iter().map(text).collect::<Vec<_>>().join(",")
    }

    /// Returns the last IPv4 range; empty if there is none.
    pub(super) fn v4(&self) -> &str {
        self.last(|range| matches!(range, IpNet::V4(_)))
    }

    /// Returns the last IPv6 range; empty if there is none.
    pub(super) fn v6(&self) -> &str {
        self.last(|range| matches!(range, IpNet::V6(_)))
    }

    fn last(&self, family: impl Fn(&IpNet) -> bool) -> &str {
        let mut of_family = self.blocks.iter().rev().filter(|(_, range)| family(range));
        of_family.next().map_or("", |(text, _)| text)
    }

    /// Returns the first range.
    pub(super) fn first(&self) -> &str {
        self.blocks.first().map_or("", |(text, _)| text)
    }

    /// Returns the address at `index` in the first range, counted from its network address.
    pub(super) fn address(&self, cluster: &Cluster, index: u8) -> Result<IpAddr, Problem> {
        let (text, range) = self
            .blocks
            .first()
            .ok_or_else(|| self.too_small(cluster, "", index))?;
        let address: IpAddr = match range {
            IpNet::V4(range) => {
                let network = u32::from(range.network());
                network
                    .checked_add(u32::from(index))
                    .map(|bits| IpAddr::V4(bits.into()))
            }
            IpNet::V6(range) => {
                let network = u128::from(range.network());
                network
                    .checked_add(u128::from(index))
                    .map(|bits| IpAddr::V6(bits.into()))
            }
        }
        .filter(|address| range.contains(address))
        .ok_or_else(|| self.too_small(cluster, text, index))?;
        Ok(address)
    }

    fn too_small(&self, cluster: &Cluster, text: &str, index: u8) -> Problem {
        let message = format!(
            "spec.clusterNetwork.{}.cidrBlocks of {} begins with {text:?}, which has no address number {index}",
            self.field,
            named(cluster)
        );
        Problem::new(Reason::CIDRInvalid, message)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn cluster(blocks: &Value) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "c1", "namespace": "ns1"},
            "spec": {"clusterNetwork": {"services": {"cidrBlocks": blocks}}},
        }))
        .unwrap()
    }

    #[rstest]
    #[case(json!(["100.64.0.0/13"]), "100.64.0.0/13", "", "ipv4", "100.64.0.10")]
    #[case(json!(["fd00:100:64::/108"]), "", "fd00:100:64::/108", "ipv6", "fd00:100:64::a")]
    #[case(json!(["100.64.0.0/13", "fd00::/108"]), "100.64.0.0/13", "fd00::/108", "ipv4,ipv6", "100.64.0.10")]
    #[case(json!(["fd00::/108", "100.64.0.0/13"]), "100.64.0.0/13", "fd00::/108", "ipv6,ipv4", "fd00::a")]
    // Host bits do not matter.
    #[case(json!(["10.0.0.7/24"]), "10.0.0.7/24", "", "ipv4", "10.0.0.10")]
    fn ranges_are_told_apart_by_family(
        #[case] blocks: Value,
        #[case] v4: &str,
        #[case] v6: &str,
        #[case] families: &str,
        #[case] dns: &str,
    ) {
        let cluster = cluster(&blocks);
        let ranges = Ranges::of_services(&cluster).unwrap();
        assert_eq!(
            (ranges.v4(), ranges.v6(), &*ranges.families()),
            (v4, v6, families)
        );
        assert_eq!(ranges.address(&cluster, 10).unwrap().to_string(), dns);
    }

    #[rstest]
    #[case(json!([]), Reason::CIDRMissing)]
    #[case(json!(["10.0.0.0/8", "fd00::/8", "11.0.0.0/8"]), Reason::CIDRTooMany)]
    #[case(json!(["10.0.0.0"]), Reason::CIDRInvalid)]
    #[case(json!(["10.0.0.0/8", "ten/8"]), Reason::CIDRInvalid)]
    fn invalid_ranges_are_problems(#[case] blocks: Value, #[case] reason: Reason) {
        let problem = Ranges::of_services(&cluster(&blocks)).unwrap_err();
        assert_eq!(problem.reason, reason);
        assert!(
            problem.message.contains("services.cidrBlocks of Cluster ns1/c1"),
            "{problem}"
        );
    }

    #[rstest]
    #[case("10.0.0.0/29")]
    #[case("255.255.255.250/31")]
    fn a_range_without_the_address_is_a_problem(#[case] range: &str) {
        let cluster = cluster(&json!([range]));
        let problem = Ranges::of_services(&cluster)
            .unwrap()
            .address(&cluster, 10)
            .unwrap_err();
        assert_eq!(problem.reason, Reason::CIDRInvalid);
    }
}
