//! Compares an App with the one that kapp-controller builds from a Package.
//!
//! A Package that is edited in the workload cluster and restored leaves an App that was built from the edit and that succeeded. Its
//! generations and versions do not show this until kapp-controller reconciles the Package again.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::{Value, json};
use sluice_crds::foreign::{Package, PackageInstall};

/// Parts of an App's spec that come from the Package; the others come from the PackageInstall.
const FROM_PACKAGE: [&str; 3] = ["fetch", "template", "deploy"];

/// Prefix of the annotations of a PackageInstall that make kapp-controller extend the App.
const EXTENSIONS: &str = "ext.packaging.carvel.dev/";

/// Whether `spec` of an App is the template of `package`, apart from what kapp-controller v0.53.1 adds for `install`: Secrets of
/// registries in fetch steps, Secrets with values or overlays at the end of template steps, and names for Helm (`NewApp` in
/// `pkg/packageinstall/app.go`).
#[must_use]
pub fn is_made_from(spec: &Value, package: &Package, install: &PackageInstall) -> bool {
    let template = package.spec.rest.get("template").unwrap_or(&Value::Null);
    FROM_PACKAGE.iter().all(|part| {
        let (app, package) = (&spec[part], &template["spec"][part]);
        comparable(part, app, install) == comparable(part, package, install)
    })
}

/// Returns the values of the annotation of this name, and of those that begin with it and a dot.
fn extensions<'a>(install: &'a PackageInstall, name: &str) -> impl Iterator<Item = &'a str> {
    let annotations = install.annotations().iter();
    annotations.filter_map(move |(key, value)| {
        let suffix = key.strip_prefix(EXTENSIONS)?.strip_prefix(name)?;
        (suffix.is_empty() || suffix.starts_with('.')).then_some(value.as_str())
    })
}

/// Returns the steps of one part without additions of kapp-controller and without fields that Go omits.
fn comparable(part: &str, steps: &Value, install: &PackageInstall) -> Value {
    let mut steps = steps.clone();
    for (number, step) in steps.as_array_mut().into_iter().flatten().enumerate() {
        for (_, tool) in step.as_object_mut().into_iter().flatten() {
            match part {
                "fetch" => without_registry_secret(tool, number, install),
                "template" => without_values(tool, install),
                _ => {}
            }
        }
    }
    without_empty(steps)
}

/// Removes the registry Secret of a fetch step: the one in an annotation, whatever the Package names, else one that other software
/// may fill.
fn without_registry_secret(tool: &mut Value, step: usize, install: &PackageInstall) {
    let given = extensions(install, &format!("fetch-{step}-secret-name")).next();
    let of_nobody = format!("{}-fetch-{step}", install.name_any());
    let clean = |tool: &mut Value| {
        let Some(tool) = tool.as_object_mut() else { return };
        let named = tool.get("secretRef").and_then(|secret| secret["name"].as_str());
        if given.is_some() || named == Some(&of_nobody) {
            tool.remove("secretRef");
        }
    };
    clean(tool);
    if let Some(repository) = tool.get_mut("repository") {
        clean(repository);
    }
}

fn without_values(tool: &mut Value, install: &PackageInstall) {
    let values = install
        .spec
        .values
        .iter()
        .filter_map(|values| values.secret_ref.as_ref());
    let given: BTreeSet<&str> = values
        .map(|secret| secret.name.as_str())
        .chain(extensions(install, "ytt-paths-from-secret-name"))
        .chain(extensions(install, "helm-template-values-from-secret-name"))
        .collect();
    let is_added = |source: &Value| {
        let name = source["secretRef"]["name"].as_str();
        name.is_some_and(|name| given.contains(name) && *source == json!({"secretRef": {"name": name}}))
    };
    for sources in ["/valuesFrom", "/inline/pathsFrom"] {
        if let Some(Value::Array(sources)) = tool.pointer_mut(sources) {
            while sources.last().is_some_and(is_added) {
                sources.pop();
            }
        }
    }
    let Some(tool) = tool.as_object_mut() else { return };
    if tool.get("inline").cloned().map(without_empty) == Some(json!({})) {
        tool.remove("inline");
    }
    for (field, given) in [
        ("name", "helm-template-name"),
        ("namespace", "helm-template-namespace"),
    ] {
        if extensions(install, given).next().is_some() {
            tool.remove(field);
        }
    }
}

/// Removes fields that are null, false, 0, or empty texts or lists. A tool without settings stays, because it is a step.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name, without_empty(value)));
            Value::Object(fields.filter(|(_, value)| !is_left_out(value)).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        Value::Null => Value::Array(Vec::new()),
        scalar => scalar,
    }
}

fn is_left_out(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(value) => value.is_empty(),
        Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The steps of a Package, as a short list of its fields.
    fn package() -> Value {
        json!({
            "fetch": [{"imgpkgBundle": {"image": "registry.example.com/antrea:1.9.0"}}],
            "template": [
                {"ytt": {"paths": ["config"], "inline": {"paths": {"overlay.yaml": "a: 1"}}}},
                {"kbld": {"paths": ["-"]}},
            ],
            "deploy": [{"kapp": {"rawOptions": ["--wait-timeout=5m"]}}],
        })
    }

    /// The App that kapp-controller makes of it.
    fn app() -> Value {
        let mut app = package();
        app["fetch"][0]["imgpkgBundle"]["secretRef"] = json!({"name": "one-antrea-fetch-0"});
        app["template"][0]["ytt"]["valuesFrom"] = json!([{"secretRef": {"name": "values"}}]);
        app["template"][0]["ytt"]["inline"]["pathsFrom"] = json!([{"secretRef": {"name": "overlay"}}]);
        app["serviceAccountName"] = json!("account");
        app["syncPeriod"] = json!("10m0s");
        app
    }

    fn made_from(app: &Value, package: &Value) -> bool {
        let install = json!({
            "metadata": {"name": "one-antrea", "annotations": {
                "ext.packaging.carvel.dev/ytt-paths-from-secret-name.0": "overlay",
                "ext.packaging.carvel.dev/fetch-1-secret-name": "registry",
                "ext.packaging.carvel.dev/helm-template-name": "release",
            }},
            "spec": {"values": [{"secretRef": {"name": "values"}}]},
        });
        let package =
            json!({"metadata": {}, "spec": {"refName": "a", "version": "1", "template": {"spec": package}}});
        let install = serde_json::from_value(install).unwrap();
        is_made_from(app, &serde_json::from_value(package).unwrap(), &install)
    }

    #[test]
    fn additions_of_kapp_controller_are_no_difference() {
        assert!(made_from(&app(), &package()));
    }

    type Edit = fn(&mut Value);

    #[rstest]
    #[case::another_image((|app| app["fetch"][0]["imgpkgBundle"]["image"] = json!("registry.example.com/antrea:1.8.0")) as Edit)]
    #[case::another_overlay((|app| app["template"][0]["ytt"]["inline"]["paths"]["overlay.yaml"] = json!("a: 2")) as Edit)]
    #[case::one_more_overlay((|app| app["template"][0]["ytt"]["inline"]["paths"]["more.yaml"] = json!("b: 2")) as Edit)]
    #[case::values_of_others((|app| app["template"][0]["ytt"]["valuesFrom"] = json!([{"secretRef": {"name": "others"}}])) as Edit)]
    #[case::values_with_a_key((|app| app["template"][0]["ytt"]["valuesFrom"] = json!([{"secretRef": {"name": "values", "key": "a"}}])) as Edit)]
    #[case::values_before_others((|app| app["template"][0]["ytt"]["valuesFrom"] = json!([{"secretRef": {"name": "values"}}, {"path": "a"}])) as Edit)]
    #[case::overlays_of_others((|app| app["template"][0]["ytt"]["inline"]["pathsFrom"] = json!([{"secretRef": {"name": "others"}}])) as Edit)]
    #[case::one_more_step((|app| app["template"].as_array_mut().unwrap().push(json!({"ytt": {}}))) as Edit)]
    #[case::another_tool((|app| app["template"][1] = json!({"helmTemplate": {"paths": ["-"]}})) as Edit)]
    #[case::other_options((|app| app["deploy"][0]["kapp"]["rawOptions"] = json!(["--wait=false"])) as Edit)]
    #[case::no_steps((|app| app["deploy"] = Value::Null) as Edit)]
    #[case::not_understood((|app| *app = json!("app")) as Edit)]
    fn an_app_of_an_edited_package_is_not(#[case] edit: Edit) {
        let mut edited = app();
        edit(&mut edited);
        assert!(!made_from(&edited, &package()), "{edited}");
    }

    #[test]
    fn another_number_is_a_difference() {
        let fetched = |depth: u8| json!({"fetch": [{"git": {"url": "a", "depth": depth}}]});
        assert!(made_from(&fetched(2), &fetched(2)));
        assert!(!made_from(&fetched(3), &fetched(2)));
        assert!(!made_from(&fetched(0), &fetched(2)));
    }

    #[rstest]
    #[case::empty_fields(json!([{"ytt": {"ignoreUnknownComments": false, "strict": null, "paths": []}}]), json!([{"ytt": {}}]))]
    #[case::overlays_only(json!([{"ytt": {}}]), json!([{"ytt": {"inline": {"pathsFrom": [{"secretRef": {"name": "overlay"}}]}}}]))]
    #[case::values_of_helm(json!([{"helmTemplate": {"valuesFrom": [{"path": "a"}]}}]), json!([{"helmTemplate": {"valuesFrom": [{"path": "a"}, {"secretRef": {"name": "values"}}]}}]))]
    #[case::name_of_helm(json!([{"helmTemplate": {"path": "chart"}}]), json!([{"helmTemplate": {"path": "chart", "name": "release"}}]))]
    #[case::no_number(json!([{"ytt": {"depth": 0}}]), json!([{"ytt": {}}]))]
    #[case::no_steps(Value::Null, json!([]))]
    fn added_and_omitted_fields_are_no_difference(#[case] of_package: Value, #[case] of_app: Value) {
        let template = |steps: &Value| json!({"template": steps});
        assert!(made_from(&template(&of_app), &template(&of_package)));
    }

    #[rstest]
    #[case::image(json!({"image": {"url": "a"}}), json!({"image": {"url": "a", "secretRef": {"name": "one-antrea-fetch-0"}}}), true)]
    #[case::image_of_others(json!({"image": {"url": "a"}}), json!({"image": {"url": "a", "secretRef": {"name": "others"}}}), false)]
    #[case::chart(json!({"helmChart": {"repository": {"url": "b"}}}), json!({"helmChart": {"repository": {"url": "b", "secretRef": {"name": "one-antrea-fetch-0"}}}}), true)]
    #[case::secret_of_the_package(json!({"http": {"url": "a", "secretRef": {"name": "b"}}}), json!({"http": {"url": "a", "secretRef": {"name": "b"}}}), true)]
    #[case::another_secret(json!({"http": {"url": "a", "secretRef": {"name": "b"}}}), json!({"http": {"url": "a", "secretRef": {"name": "c"}}}), false)]
    #[case::inline(json!({"inline": {}}), json!({"inline": {"pathsFrom": [{"secretRef": {"name": "one-antrea-fetch-0"}}]}}), false)]
    fn secrets_of_registries_are_those_that_kapp_controller_names(
        #[case] of_package: Value,
        #[case] of_app: Value,
        #[case] same: bool,
    ) {
        let fetch = |step: &Value| json!({"fetch": [step]});
        assert_eq!(made_from(&fetch(&of_app), &fetch(&of_package)), same);
    }

    #[test]
    fn a_secret_that_an_annotation_gives_to_a_fetch_step_is_no_difference() {
        let steps = |second: Value| json!({"fetch": [{"inline": {}}, second]});
        let package = steps(json!({"git": {"url": "a"}}));
        let with = |secret: &str| steps(json!({"git": {"url": "a", "secretRef": {"name": secret}}}));
        assert!(made_from(&with("registry"), &package));
        assert!(made_from(&with("registry"), &with("its-own")));
        let elsewhere = json!({"fetch": [{"git": {"url": "a", "secretRef": {"name": "registry"}}}]});
        assert!(!made_from(&elsewhere, &json!({"fetch": [{"git": {"url": "a"}}]})));
    }
}
