//! Versions of container images.

use serde_json::Value;

use super::object::elements;

/// Returns the container of a Pod template with this name.
pub(super) fn container<'a>(workload: &'a Value, name: &str) -> Option<&'a Value> {
    elements(workload, "/spec/template/spec/containers")
        .find(|container| container.get("name").and_then(Value::as_str) == Some(name))
}

/// Whether tag or sha256 digest of an image reference is the version, byte for byte. A reference without a tag means `latest`, which is no
/// version.
pub(super) fn has_version(image: &str, version: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash separates the port of a registry.
    let last = name.rsplit('/').next().unwrap_or(name);
    let tag = last.split_once(':').map(|(_, tag)| tag);
    let digest = digest.filter(|digest| digest.starts_with("sha256:"));
    !version.is_empty() && (tag == Some(version) || digest == Some(version))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::tag("quay.io/cilium/cilium:v1.18.2", "v1.18.2", true)]
    #[case::tag_without_registry("cilium:v1.18.2", "v1.18.2", true)]
    #[case::registry_with_a_port("registry.test:5000/cilium:v1.18.2", "v1.18.2", true)]
    #[case::port_without_tag("registry.test:5000/cilium", "5000/cilium", false)]
    #[case::port_as_version("registry.test:5000/cilium", "5000", false)]
    #[case::digest("cilium@sha256:aa", "sha256:aa", true)]
    #[case::digest_without_algorithm("cilium@sha256:aa", "aa", false)]
    #[case::digest_of_another_algorithm("cilium@sha512:aa", "sha512:aa", false)]
    #[case::tag_beside_a_digest("registry.test:5000/cilium:v1.18.2@sha256:aa", "v1.18.2", true)]
    #[case::digest_beside_a_tag("registry.test:5000/cilium:v1.18.2@sha256:aa", "sha256:aa", true)]
    #[case::other_tag("cilium:v1.18.20", "v1.18.2", false)]
    #[case::without_v("cilium:v1.18.2", "1.18.2", false)]
    #[case::other_case("cilium:V1.18.2", "v1.18.2", false)]
    #[case::no_tag("cilium", "latest", false)]
    #[case::name_as_version("cilium", "cilium", false)]
    #[case::empty_tag("cilium:", "", false)]
    #[case::empty_image("", "", false)]
    fn the_version_of_an_image_is_its_tag_or_digest(
        #[case] image: &str,
        #[case] version: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(has_version(image, version), expected);
    }

    #[test]
    fn only_containers_of_the_template_are_found() {
        let workload = json!({"spec": {"template": {"spec": {
            "containers": [{"name": "agent", "image": "a:1"}],
            "initContainers": [{"name": "mount", "image": "b:1"}],
        }}}});
        assert_eq!(
            container(&workload, "agent"),
            Some(&json!({"name": "agent", "image": "a:1"}))
        );
        assert_eq!(container(&workload, "mount"), None);
        assert_eq!(container(&json!({"spec": {"template": []}}), "agent"), None);
    }
}
